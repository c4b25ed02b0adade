"""Wrong: it reads the stock without a lock, and writes the number that it computed.

Two purchases read the same stock, and the second overwrites the write of the first. A
CHECK (stock >= 0) does not help: the number is never below 0. prove finds stock-balance broken,
and no-more-than-there-was if purchases overwrote more units than cancellations did.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import shop


class NoLock(shop.Shop):
    def take(self, db, sku, quantity):
        db.execute("SELECT stock FROM products WHERE sku = %s", (sku,))
        row = db.fetchone()
        if row is None:
            raise shop.Refused(404, "no-such-product")
        self.check()
        if row[0] < quantity:
            return False
        db.execute("UPDATE products SET stock = %s WHERE sku = %s", (row[0] - quantity, sku))
        return True


shop.main(NoLock)
