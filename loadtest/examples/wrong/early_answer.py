"""Wrong: it answers before COMMIT, and writes the order in the background.

The client is told that it has an order. If the write finds too few units, fails, or dies with
the process, there is no order. prove finds acknowledged-is-stored and no-more-than-there-was broken.
"""

import json
import sys
import threading
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import shop


class EarlyAnswer(shop.Shop):
    def buy(self, client, key, order):
        if order.get("sku") not in ("coffee", "tea"):
            raise shop.Refused(404, "no-such-product")
        order_id = str(uuid.uuid5(uuid.NAMESPACE_URL, client + key))  # a retry gets the same answer
        threading.Thread(target=self.write, args=(order_id, client, key, order["sku"], order["quantity"])).start()
        return 201, json.dumps({"id": order_id, "sku": order["sku"], "quantity": order["quantity"]})

    def write(self, order_id, client, key, sku, quantity):
        def work(db):
            if not self.take(db, sku, quantity):
                return 409, ""  # but the client got 201
            return self.confirm(db, order_id, client, key, sku, quantity)

        self.once(client, key, sku, work)


shop.main(EarlyAnswer)
