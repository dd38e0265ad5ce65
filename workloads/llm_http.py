"""The HTTP endpoint of llm_server.py: POST /v1/completions in OpenAI's form, and GET /health.

Text is taken byte by byte: a token's id is the byte, and a few more ids are special. Answers are greedy;
fields of a request other than prompt, max_tokens and stream have no effect. It needs no GPU.
"""

import itertools
import json
import queue
import select
import socket
import threading
import time
from array import array
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from llm_scheduler import COMPLETE, Request

ADDRESS = "127.0.0.1"
BYTES = 256
BEGIN_TOKEN, END_TOKEN = 256, 257  # before each text; the end of an answer
DEFAULT_OUTPUT = 16  # tokens, as in OpenAI's interface
LARGEST_BODY = 4 << 20  # bytes

# Seconds.
CLIENT_LOOK = 0.1  # between two looks at whether a client that waits is still there
CLIENT_PATIENCE = 60  # for a client that neither reads nor writes
IDLE_WAIT = 0.05  # between two looks at whether the server is to stop


class BadRequest(Exception):
    """What a client asked for cannot be done; the message is a sentence for it."""


def tokens_of_text(text):
    return [BEGIN_TOKEN, *text.encode()]


def text_of_tokens(tokens):
    """Bytes as UTF-8, as far as they are; other tokens as their number in angle brackets."""
    parts = []
    for are_bytes, group in itertools.groupby(tokens, lambda token: token < BYTES):
        if are_bytes:
            parts.append(bytes(group).decode(errors="replace"))
        else:
            parts += [f"<{token}>" for token in group if token != END_TOKEN]
    return "".join(parts)


class Inbox:
    """Requests of clients, on their way to the thread that does the steps."""

    def __init__(self, vocabulary, fits, clock=time.monotonic):
        self.vocabulary = vocabulary
        self.fits = fits
        self.clock = clock
        self.indices = itertools.count()
        self.new = queue.SimpleQueue()
        self.filled = threading.Event()

    def put(self, prompt, output_length):
        """A request whose tokens, and then None, come out of the queue that is returned with it."""
        answer = queue.SimpleQueue()
        request = Request(
            next(self.indices),
            self.clock(),
            array("q", prompt),
            output_length,
            stop_token=END_TOKEN,
            on_token=answer.put,
            on_end=lambda: answer.put(None),
        )
        self.new.put(request)
        self.filled.set()
        return request, answer

    def over(self):
        return False

    def arrived(self, _now):
        self.filled.clear()
        requests = []
        while not self.new.empty():
            requests.append(self.new.get())
        return requests

    def wait(self, _stop):
        self.filled.wait(IDLE_WAIT)


def read_completion(body, inbox):
    """Prompt, output length and whether to stream, of the body of a request."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON.") from None
    if not isinstance(fields, dict):
        raise BadRequest("The body must be a JSON object.")
    prompt = read_prompt(fields.get("prompt"), inbox.vocabulary)
    output_length = fields.get("max_tokens", DEFAULT_OUTPUT)
    if not is_whole_number(output_length) or output_length < 1:
        raise BadRequest("max_tokens must be a whole number of at least 1.")
    stream = fields.get("stream", False)
    if not isinstance(stream, bool):
        raise BadRequest("stream must be true or false.")
    if not inbox.fits(len(prompt) + output_length):
        raise BadRequest(
            f"A prompt of {len(prompt)} tokens and {output_length} more are too long for this server; "
            "shorten the prompt or lower max_tokens."
        )
    return prompt, output_length, stream


def read_prompt(prompt, vocabulary):
    if isinstance(prompt, str):
        try:
            return tokens_of_text(prompt)
        except UnicodeEncodeError:
            raise BadRequest("prompt has half of a surrogate pair, which is no text.") from None
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt must be a text or a list of at least one token id.")
    if not all(is_whole_number(token) and 0 <= token < vocabulary for token in prompt):
        raise BadRequest(f"The token ids of prompt must be whole numbers from 0 to {vocabulary - 1}.")
    return prompt


def is_whole_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


class Handler(BaseHTTPRequestHandler):
    """Answers one client; each connection has a thread of its own."""

    protocol_version = "HTTP/1.1"
    timeout = CLIENT_PATIENCE
    disable_nagle_algorithm = True  # or a token could wait for the next one

    def do_GET(self):
        if self.path == "/health":
            self.answer(HTTPStatus.OK, {"status": "ok"})
        else:
            self.refuse(HTTPStatus.NOT_FOUND, f"There is no {self.path} here; try /health.")

    def do_POST(self):
        try:
            body = self.read_body()
            if self.path != "/v1/completions":
                self.refuse(HTTPStatus.NOT_FOUND, f"There is no {self.path} here; try /v1/completions.")
                return
            prompt, output_length, stream = read_completion(body, self.server.inbox)
        except BadRequest as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        request, tokens = self.server.inbox.put(prompt, output_length)
        try:
            if stream:
                self.stream(request, tokens)
            else:
                self.complete(request, tokens)
        except OSError:
            self.close_connection = True
        finally:
            request.cancelled = True  # or has ended, and then this has no effect

    def read_body(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            self.close_connection = True  # the body stays unread
            raise BadRequest(f"The request needs a Content-Length of at most {LARGEST_BODY}.")
        return self.rfile.read(int(length))

    def complete(self, request, tokens):
        answer = list(self.while_connected(tokens))
        usage = {
            "prompt_tokens": len(request.prompt),
            "completion_tokens": len(answer),
            "total_tokens": len(request.prompt) + len(answer),
        }
        if request.ended == COMPLETE:
            reason = finish_reason(answer)
            self.answer(HTTPStatus.OK, self.completion(request, answer, reason) | {"usage": usage})
        else:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The server stopped before the answer was complete.")

    def stream(self, request, tokens):
        """Send each token as an event, and `[DONE]` after the last one, unless the server stopped before."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        for count, token in enumerate(self.while_connected(tokens), 1):
            is_last = count == request.output_length or token == END_TOKEN
            reason = finish_reason([token]) if is_last else None
            self.send_event(json.dumps(self.completion(request, [token], reason)))
        if request.ended == COMPLETE:
            self.send_event("[DONE]")

    def send_event(self, data):
        self.wfile.write(f"data: {data}\n\n".encode())

    def while_connected(self, tokens):
        """The tokens of an answer as they come, until its end; an error if the client goes away."""
        while True:
            if self.client_left():
                raise ConnectionResetError
            try:
                token = tokens.get(timeout=CLIENT_LOOK)
            except queue.Empty:
                continue
            if token is None:
                return
            yield token

    def client_left(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def completion(self, request, tokens, reason):
        choice = {
            "index": 0,
            "text": text_of_tokens(tokens),
            "token_ids": tokens,
            "logprobs": None,
            "finish_reason": reason,
        }
        return {
            "id": f"cmpl-{request.index}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.server.model_name,
            "choices": [choice],
        }

    def refuse(self, status, sentence):
        self.answer(status, {"error": {"message": sentence, "type": "invalid_request_error"}})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing: the report has all requests."""


def finish_reason(tokens):
    return "stop" if tokens[-1] == END_TOKEN else "length"


class HttpServer(ThreadingHTTPServer):
    """Listens on this machine alone. Its clients' requests come out of its inbox."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, inbox, model_name):
        super().__init__((ADDRESS, port), Handler)
        self.inbox = inbox
        self.model_name = model_name

    @property
    def url(self):
        return f"http://{ADDRESS}:{self.server_port}"

    def start(self):
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()
