"""An independent client, nats-py: `interop.py ADDRESS send|dead|take`."""

import asyncio
import json
import sys

import nats


def job(name):
    return json.dumps({"version": 1, "image": {"url": f"https://example.com/{name}.jpg"}}).encode()


async def send(jetstream):
    await jetstream.publish("JOBS", job("named"), headers={"Nats-Msg-Id": "named"})
    await jetstream.publish("JOBS", job("named"), headers={"Nats-Msg-Id": "named"})
    await jetstream.publish("JOBS", job("nameless"))


async def dead(jetstream):
    letters = await jetstream.pull_subscribe("", durable="reader", stream="JOBS-DEAD")
    for message in await letters.fetch(10, timeout=2):
        print(json.dumps({"headers": message.headers, "body": json.loads(message.data)}))
        await message.ack()


async def take(jetstream):
    jobs = await jetstream.pull_subscribe_bind("foveate", stream="JOBS")
    for message in await jobs.fetch(10, timeout=2):
        print(json.dumps({"headers": message.headers, "body": json.loads(message.data)}))
        await message.ack_sync()


async def main(address, step):
    client = await nats.connect(f"nats://{address}")
    await {"send": send, "dead": dead, "take": take}[step](client.jetstream())
    await client.close()


asyncio.run(main(*sys.argv[1:]))
