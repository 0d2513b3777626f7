"""Validates the message on each line of standard input against the schema in argv[1]: prints 1 if valid, 0 if not."""

import json
import sys

from jsonschema import Draft202012Validator

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def is_good(line):
    try:
        return validator.is_valid(json.loads(line, parse_constant=refuse))
    except ValueError:
        return False


for line in sys.stdin.buffer:
    print(int(is_good(line)))
