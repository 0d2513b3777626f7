"""What OpenAI's own client sees of `foveate serve`: argv is the server's address and a photo."""

import base64
import sys

import openai

address, photo = sys.argv[1:]
client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="key", max_retries=0)
with open(photo, "rb") as file:
    text = base64.b64encode(file.read()).decode()
image = "data:image/jpeg;base64," + text
broken = "data:image/jpeg;base64,AAAA"


def refused(kind, code, call, **arguments):
    try:
        answer = call(**arguments)
    except openai.APIStatusError as error:
        assert type(error) is kind and error.code == code, (type(error), error.code, error)
        assert error.body["message"], error
        return error
    raise AssertionError(f"{arguments} was answered: {answer}")


def embed(**arguments):
    return client.embeddings.create(**{"model": "text-embedding-3-small", **arguments})


# The client asks for base64 unless told otherwise, and decodes it.
two, floats = embed(input=[image, image]), embed(input=image, encoding_format="float")
assert [item.index for item in two.data] == [0, 1]
pairs = zip(two.data[0].embedding, floats.data[0].embedding, strict=True)
assert two.data[0].embedding == two.data[1].embedding and all(abs(a - b) < 1e-6 for a, b in pairs)
assert len(floats.data[0].embedding) == 64 and two.model == "org/photos" and two.usage.total_tokens == 0

failed = refused(openai.UnprocessableEntityError, "inputs_failed", embed, input=[image, broken])
assert failed.body["message"].startswith("1 of 2 inputs failed; input 1: "), failed
assert failed.type == "invalid_request_error" and failed.request_id, failed
partial = embed(input=[image, broken], extra_body={"partial_results": True})
assert [item.object for item in partial.data] == ["embedding", "error"], partial

hint = refused(openai.BadRequestError, "invalid_request", embed, input="a photo of a cat")
assert "this server embeds no texts" in hint.body["message"], hint
assert embed(input=text, encoding_format="float").data[0].embedding == floats.data[0].embedding
part = {"type": "image_url", "image_url": {"url": image}}
vision = embed(input=[part], encoding_format="float", extra_body={"normalize": False, "truncate": "END"})
assert vision.data[0].embedding == floats.data[0].embedding
refused(openai.UnprocessableEntityError, "inputs_failed", embed, input=["s3://bucket/cat.jpg"])
refused(openai.BadRequestError, "invalid_request", embed, input=image, dimensions=8)
embed(input=image, dimensions=64)
refused(openai.NotFoundError, "model_not_found", embed, input=image, model="gpt-4o")

assert [model.id for model in client.models.list()] == ["org/photos", "text-embedding-3-small"]
assert client.models.retrieve("org/photos").created > 0
refused(openai.NotFoundError, "model_not_found", client.models.retrieve, model="gpt-4o")
stranger = client.with_options(api_key="other")
refused(openai.AuthenticationError, "invalid_api_key", stranger.models.list)
