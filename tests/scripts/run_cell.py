"""Run a cell on a notebook server: URL CODE. In its first kernel, or in a new one.

It is run by the notebook's own Python, which has tornado.
"""

import asyncio
import json
import sys
import uuid
from urllib.parse import parse_qs, urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect


async def main(url: str, code: str) -> None:
    at = urlsplit(url)
    head = {"Authorization": f"token {parse_qs(at.query)['token'][0]}"}

    async def ask(method: str, **words) -> object:
        kernels = f"http://{at.netloc}/api/kernels"
        request = HTTPRequest(kernels, method=method, headers=head, request_timeout=240, **words)
        return json.loads((await AsyncHTTPClient().fetch(request)).body)

    found = await ask("GET")
    kernel = (found or [await ask("POST", body="{}")])[0]["id"]
    channels = f"ws://{at.netloc}/api/kernels/{kernel}/channels"
    talk = await websocket_connect(HTTPRequest(channels, headers=head))
    own = uuid.uuid4().hex
    header = {"msg_id": own, "msg_type": "execute_request", "session": own, "username": ""}
    asked = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
    parts = {"parent_header": {}, "metadata": {}, "channel": "shell", "buffers": []}
    await talk.write_message(json.dumps({"header": header, "content": asked, **parts}))
    while said := await talk.read_message():
        row = json.loads(said)
        if row["parent_header"].get("msg_id") != own:
            continue
        if row["msg_type"] == "stream":
            sys.stdout.write(row["content"]["text"])
        if row["msg_type"] == "error":
            sys.exit(row["content"]["evalue"])
        if row["msg_type"] == "status" and row["content"]["execution_state"] == "idle":
            return
    sys.exit("the server broke off")


asyncio.run(main(*sys.argv[1:]))
