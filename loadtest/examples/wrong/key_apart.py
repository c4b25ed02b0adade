"""Wrong: it looks for the key, does the work, and stores the key in three separate transactions.

A concurrent duplicate finds no key and does the work again: two orders, two answers. So does
a retry after a crash between the second and the third transaction. prove finds
once-per-key (I-ONCE) and one-order-per-key broken.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import shop


class KeyApart(shop.Shop):
    def once(self, client, key, request, work):
        with self.transaction() as db:
            db.execute("SELECT FROM keys WHERE client = %s AND key = %s", (client, key))
            if db.fetchone() is not None:
                return self.replay(db, client, key, request)
        with self.transaction() as db:
            status, body = work(db)
        with self.transaction() as db:
            db.execute("INSERT INTO keys VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", (client, key, request, status, body))
        return status, body


shop.main(KeyApart)
