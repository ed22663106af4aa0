"""A real S3 server on loopback."""

import logging
import urllib.request
from threading import Thread

import pytest
from werkzeug.serving import make_server

werkzeug_app = pytest.importorskip("moto.moto_server.werkzeug_app")
logging.getLogger("werkzeug").setLevel("ERROR")


class Store:
    """An S3 server with a bucket named runs, that answers the next `errors` requests with 503."""

    def __init__(self):
        self.app, self.errors = werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app), 0
        self.server = make_server("127.0.0.1", 0, self.answer, threaded=True)
        Thread(target=self.server.serve_forever, daemon=True).start()
        bucket = f"http://127.0.0.1:{self.server.server_port}/runs"
        urllib.request.urlopen(urllib.request.Request(bucket, method="PUT")).close()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, environ, start_response):
        if self.errors:
            self.errors -= 1
            start_response("503 Slow Down", [("Content-Length", "0"), ("Connection", "close")])
            return [b""]
        return self.app(environ, start_response)

    def url(self, run):
        where = f"scheme=http&endpoint_override=127.0.0.1:{self.server.server_port}"
        return f"s3://key:secret@runs/{run}?region=us-east-1&{where}"
