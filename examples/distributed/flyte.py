"""Embeds a collection with Flyte, each shard as a task.

pyflyte run --remote flyte.py embed_all --inputs s3://photos/ --output s3://vectors/run/ --shards 8
"""

from functools import partial

from flytekit import ImageSpec, Resources, map_task, task, workflow

import foveate

IMAGE = ImageSpec(name="foveate", packages=["foveate"], registry="registry.example")


# A retried task continues where its shard stopped.
@task(container_image=IMAGE, requests=Resources(cpu="16", mem="16Gi"), retries=5, interruptible=True)
def embed_shard(shard: str, inputs: str, output: str, model: str) -> int:
    """Embed one shard; return its number of vectors."""
    report: dict = foveate.embed(inputs, output=output, shard=shard, model=model)
    return report["vectors"]


@task
def parts(shards: int) -> list[str]:
    """Name the shards: `0/8`, `1/8`, …"""
    return [f"{index}/{shards}" for index in range(shards)]


@workflow
def embed_all(inputs: str, output: str, shards: int = 8, model: str = "facebook/dinov2-small") -> list[int]:
    """Embed all shards; return each one's number of vectors."""
    embed = partial(embed_shard, inputs=inputs, output=output, model=model)
    return map_task(embed)(shard=parts(shards=shards))
