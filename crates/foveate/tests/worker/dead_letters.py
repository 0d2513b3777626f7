"""Prints the dead letters of an SQS queue, one JSON object a line.

usage: dead_letters.py ENDPOINT QUEUE
"""

import json
import sys

import boto3

endpoint, queue = sys.argv[1:]
login = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing-secret", "region_name": "eu-central-1"}
sqs = boto3.client("sqs", endpoint_url=endpoint, **login)
url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
while messages := sqs.receive_message(
    QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=600
).get("Messages"):
    for message in messages:
        said = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
        print(json.dumps({"id": said["foveate-id"], "stage": said["stage"], "reason": said["reason"]}))
