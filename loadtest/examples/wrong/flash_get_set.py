"""Wrong: it reads the stock, compares, and writes what is left, in three requests to Redis.

The keys are right: a duplicate waits for the answer to the first request with its key. But two
purchases with different keys may read the same stock, and the units of one of them are sold again.
prove finds no-more-than-there-was (I-SUPPLY) broken.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import flash

CLAIMED = "claimed"


class GetSet(flash.Flash):
    def once(self, stock, key, quantity, bought, refused):
        if self.redis("SET", key, CLAIMED, "NX") is None:
            return self.answered(key)
        answer, left = refused, int(self.redis("GET", stock))
        if left >= quantity:
            self.redis("SET", stock, left - quantity)
            answer = bought
        self.redis("SET", key, answer)
        return answer

    def answered(self, key):
        while (answer := self.redis("GET", key)) == CLAIMED:
            time.sleep(0.001)
        return answer


flash.main(GetSet)
