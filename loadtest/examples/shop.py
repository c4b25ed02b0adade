"""A shop in Python, with only the standard library and a driver for PostgreSQL.

    POST /orders              {"sku": "coffee", "quantity": 2}   201 | 404 | 409 sold-out | 503 busy
    POST /orders/ID/cancel                                       200 | 404 | 409 already-cancelled
    GET  /orders/ID, GET /products/SKU                           200 | 404

A purchase is one transaction: it inserts the idempotency key, locks the product, takes the
units, and stores the answer with the key. The answer is sent after COMMIT.

    shop.py init              creates the tables, with 60 units each of two products
    shop.py serve URL         serves at this address

DATABASE_URL is the URL of PostgreSQL. Each file in wrong/ changes one thing.
"""

import json
import os
import queue
import sys
import time
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import psycopg2

TABLES = """
DROP TABLE IF EXISTS products, orders, keys;
CREATE TABLE products (sku text PRIMARY KEY, stock int NOT NULL CHECK (stock >= 0));
CREATE TABLE orders (id uuid PRIMARY KEY, client text NOT NULL, key text NOT NULL, sku text NOT NULL REFERENCES products,
                     quantity int NOT NULL CHECK (quantity > 0), status text NOT NULL DEFAULT 'confirmed');
CREATE TABLE keys (client text, key text, request text NOT NULL, status int, body text, PRIMARY KEY (client, key));
INSERT INTO products VALUES ('coffee', 60), ('tea', 60);
"""

CLIENTS = {"Bearer token-of-alice": "alice", "Bearer token-of-bob": "bob"}  # a real shop has secrets


class Refused(Exception):
    """A request that has no effect, and whose answer is not stored."""

    def __init__(self, status, error):
        super().__init__(error)
        self.status, self.error = status, error


class Shop:
    def __init__(self, dsn, connections=8):
        self.idle = queue.LifoQueue()
        for _ in range(connections):
            self.idle.put(psycopg2.connect(dsn, options="-c lock_timeout=2000"))

    @contextmanager
    def transaction(self):
        """A cursor whose statements are committed together, or rolled back after an exception."""
        connection = self.idle.get()
        try:
            with connection, connection.cursor() as db:
                yield db
        finally:
            self.idle.put(connection)

    def once(self, client, key, request, work):
        """Does work once for each key of a client, and answers a retry as the first time.

        The key, the effect and the answer are committed together. A concurrent duplicate waits
        in its INSERT until the first transaction has committed.
        """
        with self.transaction() as db:
            db.execute("INSERT INTO keys VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (client, key, request))
            if db.rowcount == 0:
                return self.replay(db, client, key, request)
            status, body = work(db)
            db.execute("UPDATE keys SET status = %s, body = %s WHERE client = %s AND key = %s", (status, body, client, key))
        return status, body

    def replay(self, db, client, key, request):
        db.execute("SELECT request, status, body FROM keys WHERE client = %s AND key = %s", (client, key))
        first, status, body = db.fetchone()
        if first != request:
            raise Refused(422, "key-of-another-request")
        return status, body

    def take(self, db, sku, quantity):
        """Takes units from the stock, and returns whether there were enough.

        FOR UPDATE makes the next purchase wait here, and then read what this one left.
        """
        db.execute("SELECT stock FROM products WHERE sku = %s FOR UPDATE", (sku,))
        row = db.fetchone()
        if row is None:
            raise Refused(404, "no-such-product")
        self.check()
        if row[0] < quantity:
            return False
        db.execute("UPDATE products SET stock = stock - %s WHERE sku = %s", (quantity, sku))
        return True

    def check(self):
        """Stands for what a shop does between reading and writing: rules, prices, taxes."""
        time.sleep(0.008)

    def buy(self, client, key, order):
        sku, quantity = order.get("sku"), order.get("quantity")
        if not isinstance(sku, str) or not isinstance(quantity, int) or quantity < 1:
            raise Refused(400, "malformed")

        def work(db):
            if not self.take(db, sku, quantity):
                return 409, json.dumps({"error": "sold-out"})
            return self.confirm(db, str(uuid.uuid4()), client, key, sku, quantity)

        return self.once(client, key, json.dumps(order, sort_keys=True), work)

    def confirm(self, db, order_id, client, key, sku, quantity):
        db.execute("INSERT INTO orders (id, client, key, sku, quantity) VALUES (%s, %s, %s, %s, %s)", (order_id, client, key, sku, quantity))
        return 201, json.dumps({"id": order_id, "sku": sku, "quantity": quantity})

    def cancel(self, client, key, order_id):
        def work(db):
            db.execute("SELECT sku, quantity, status FROM orders WHERE id = %s AND client = %s FOR UPDATE", (order_id, client))
            row = db.fetchone()
            if row is None:  # also for the order of another client, whose existence is not revealed
                raise Refused(404, "no-such-order")
            sku, quantity, status = row
            if status == "cancelled":
                return 409, json.dumps({"error": "already-cancelled"})
            db.execute("UPDATE orders SET status = 'cancelled' WHERE id = %s", (order_id,))
            db.execute("UPDATE products SET stock = stock + %s WHERE sku = %s", (quantity, sku))
            return 200, json.dumps({"id": order_id, "status": "cancelled"})

        return self.once(client, key, "cancel " + order_id, work)

    def order(self, client, order_id):
        return self.read("SELECT id::text, sku, quantity, status FROM orders WHERE id = %s AND client = %s", (order_id, client), "no-such-order")

    def product(self, sku):
        return self.read("SELECT sku, stock FROM products WHERE sku = %s", (sku,), "no-such-product")

    def read(self, sql, arguments, error):
        with self.transaction() as db:
            db.execute(sql, arguments)
            row = db.fetchone()
            if row is None:
                raise Refused(404, error)
            return 200, json.dumps(dict(zip([column.name for column in db.description], row)))


def handler(shop):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body of an answer in one packet

        def answer(self):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, body = self.route(content)
            except Refused as refused:
                status, body = refused.status, json.dumps({"error": refused.error})
            except psycopg2.errors.LockNotAvailable:  # the transaction was rolled back: nothing was done
                status, body = 503, json.dumps({"error": "busy"})
            except psycopg2.DataError:  # an id that is none
                status, body = 404, json.dumps({"error": "not-found"})
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST = answer

        def route(self, content):
            client, key = CLIENTS.get(self.headers.get("Authorization")), self.headers.get("Idempotency-Key")
            if client is None:
                raise Refused(401, "unauthorized")
            if self.command == "POST" and not key:
                raise Refused(400, "no-key")
            path = urlsplit(self.path).path.strip("/").split("/")
            if self.command == "POST" and path == ["orders"]:
                try:
                    order = json.loads(content)
                except ValueError:
                    order = {}
                return shop.buy(client, key, order)
            if self.command == "POST" and len(path) == 3 and path[0] == "orders" and path[2] == "cancel":
                return shop.cancel(client, key, path[1])
            if self.command == "GET" and len(path) == 2 and path[0] == "orders":
                return shop.order(client, path[1])
            if self.command == "GET" and len(path) == 2 and path[0] == "products":
                return shop.product(path[1])
            raise Refused(404, "not-found")

        def log_message(self, *_):
            pass

    return Handler


def main(kind=Shop):
    dsn = os.environ["DATABASE_URL"]
    if sys.argv[1:] == ["init"]:
        connection = psycopg2.connect(dsn)
        with connection, connection.cursor() as db:
            db.execute(TABLES)
    elif len(sys.argv) == 3 and sys.argv[1] == "serve":
        address = urlsplit(sys.argv[2])
        ThreadingHTTPServer.request_queue_size = 128
        ThreadingHTTPServer((address.hostname, address.port), handler(kind(dsn))).serve_forever()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
