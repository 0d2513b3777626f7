"""An independent client, boto3: `interop.py ENDPOINT STEP QUEUE [BODY [FAILING_SINCE]]`.

Steps: `send` sends a body, perhaps with the attribute `failing-since`. `read` prints all messages as JSON and hides them
from other receivers; `take` also deletes them. `redrive` sets a policy that moves messages to the queue BODY after 3
deliveries. `limit` sets the largest message to BODY bytes.
"""

import json
import sys
import uuid

import boto3

endpoint, step, queue = sys.argv[1:4]
credentials = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing-secret"}
sqs = boto3.client("sqs", endpoint_url=endpoint, region_name="eu-central-1", **credentials)
url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]


def received():
    while True:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        if "Messages" not in answer:
            return
        yield from answer["Messages"]


if step == "send":
    fifo = {name: str(uuid.uuid4()) for name in ("MessageGroupId", "MessageDeduplicationId")}
    attributes = {"failing-since": {"DataType": "String", "StringValue": text} for text in sys.argv[5:]}
    fifo = fifo if queue.endswith(".fifo") else {}
    sqs.send_message(QueueUrl=url, MessageBody=sys.argv[4], MessageAttributes=attributes, **fifo)
elif step == "redrive":
    target = sqs.get_queue_attributes(
        QueueUrl=sqs.get_queue_url(QueueName=sys.argv[4])["QueueUrl"], AttributeNames=["QueueArn"]
    )["Attributes"]["QueueArn"]
    policy = {"deadLetterTargetArn": target, "maxReceiveCount": 6}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
elif step == "limit":
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": sys.argv[4]})
else:
    for message in received():
        attributes = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
        print(json.dumps({"attributes": attributes, "body": message["Body"]}))
        if step == "take":
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
