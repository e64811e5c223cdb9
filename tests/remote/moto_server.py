"""A moto server that checks signatures, for tests of S3.

usage: moto_server.py ROOT

Fills a bucket for each folder of ROOT, prints one line of JSON with the port and two pairs of keys
(one that may read, one that may not), and serves until its standard input ends. moto skips the
check for the first INITIAL_NO_AUTH_ACTION_COUNT actions, which are those that are made here.
"""

import json
import os
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
buckets = sorted(path for path in root.iterdir() if path.is_dir())
objects = [(bucket.name, path) for bucket in buckets for path in sorted(bucket.rglob("*")) if path.is_file()]
# Two users, their keys, one policy, and what is stored.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(5 + len(buckets) + len(objects))
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
    os.environ.pop(name, None)
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3  # noqa: E402
from botocore.config import Config  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()


def client(service):
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="setup",
        aws_secret_access_key="setup",
        config=Config(proxies={}, retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
    )


iam = client("iam")
keys = {}
for user in ("reader", "stranger"):
    iam.create_user(UserName=user)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    keys[user] = [key["AccessKeyId"], key["SecretAccessKey"]]
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=json.dumps(policy))
s3 = client("s3")
for bucket in buckets:
    s3.create_bucket(Bucket=bucket.name)
for bucket, path in objects:
    s3.put_object(Bucket=bucket, Key=str(path.relative_to(root / bucket)), Body=path.read_bytes())

print(json.dumps({"port": port, **keys}), flush=True)
sys.stdin.read()
server.stop()
