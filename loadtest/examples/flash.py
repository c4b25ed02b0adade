"""A flash sale in Python, whose stock, keys and answers are in Redis. The HTTP part is that of shop.py.

    POST /orders              {"sku": "sneaker", "quantity": 1}  201 | 404 | 409 sold-out
    GET  /products/SKU                                           200 | 404

A purchase is one script, which Redis runs alone: it looks for the answer to the key, takes the units
if there are enough, and stores the answer.

    flash.py init             fills the stock
    flash.py serve URL        serves at this address

REDIS_URL is the URL of Redis. Each file named wrong/flash_… changes one thing.
"""

import json
import os
import socket
import sys
import threading
import uuid
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import shop

STOCK = {"sneaker": 120, "cap": 60}

BUY = """
local answer = redis.call('GET', KEYS[2])
if answer then return answer end
local stock = tonumber(redis.call('GET', KEYS[1]))
if stock < tonumber(ARGV[1]) then
    answer = ARGV[3]
else
    redis.call('SET', KEYS[1], stock - ARGV[1])
    answer = ARGV[2]
end
redis.call('SET', KEYS[2], answer)
return answer
"""


class Redis:
    """A connection to Redis for each thread."""

    def __init__(self, url):
        self.url, self.own = urlsplit(url), threading.local()

    def __call__(self, *command):
        if not hasattr(self.own, "stream"):
            connection = socket.create_connection((self.url.hostname, self.url.port or 6379))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.own.stream = connection.makefile("rwb")
            if self.url.password:
                self("AUTH", self.url.username or "default", self.url.password)
        parts = [str(part).encode() for part in command]
        self.own.stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        self.own.stream.flush()
        kind, value = (head := self.own.stream.readline())[:1], head[1:-2]
        if kind == b"-":
            raise RuntimeError(value.decode())
        if kind != b"$":
            return value.decode()
        return self.own.stream.read(int(value) + 2)[:-2].decode() if value != b"-1" else None


class Flash:
    def __init__(self, redis):
        self.redis = redis

    def buy(self, client, key, order):
        sku, quantity = order.get("sku"), order.get("quantity")
        if sku not in STOCK:
            raise shop.Refused(404, "no-such-product")
        if not isinstance(quantity, int) or quantity < 1:
            raise shop.Refused(400, "malformed")
        bought = json.dumps({"id": str(uuid.uuid4()), "sku": sku, "quantity": quantity})
        answer = self.once("stock:" + sku, "answer:" + client + ":" + key, quantity, bought, json.dumps({"error": "sold-out"}))
        return (409 if "error" in json.loads(answer) else 201), answer

    def once(self, stock, key, quantity, bought, refused):
        """Takes the units once for each key, and returns the answer."""
        return self.redis("EVAL", BUY, 2, stock, key, quantity, bought, refused)

    def product(self, sku):
        if sku not in STOCK:
            raise shop.Refused(404, "no-such-product")
        return 200, json.dumps({"sku": sku, "stock": int(self.redis("GET", "stock:" + sku))})


def main(kind=Flash):
    redis = Redis(os.environ["REDIS_URL"])
    if sys.argv[1:] == ["init"]:
        for sku, units in STOCK.items():
            redis("SET", "stock:" + sku, units)
    elif len(sys.argv) == 3 and sys.argv[1] == "serve":
        address = urlsplit(sys.argv[2])
        ThreadingHTTPServer.request_queue_size = 128
        ThreadingHTTPServer((address.hostname, address.port), shop.handler(kind(redis))).serve_forever()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
