"""What a schema cannot say. Whatever else is valid by the schema must be accepted."""

import itertools
import os
import re

import schemathesis

number = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Gives each valid Idempotency-Key a number: a key that occurs twice stands for one intent."""
    key = str((case.headers or {}).get("Idempotency-Key", ""))
    bare = re.fullmatch(r"()([!#-~][ -~]{0,253}[!-~]|[!#-~])()", key)
    quoted = re.fullmatch(r'(")((?:[ !#-\[\]-~]|\\["\\]){1,255})(")', key)
    if found := bare or quoted:
        suffix = f"-{os.getpid()}-{next(number)}"  # the servers may be those of an earlier run
        characters = re.findall(r"\\.|.", found[2]) if quoted else found[2]
        case.headers = case.headers.copy()  # other cases have the same ones
        case.headers["Idempotency-Key"] = found[1] + "".join(characters[: 255 - len(suffix)]) + suffix + found[3]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Drops a refusal of a valid request, if the request breaks a rule beyond the schema and the answer says so."""
    if type(failure).__name__ != "RejectedPositiveData":
        return True
    problem = response.json()
    return not (problem.get("type") == "/problems/invalid-request" and beyond(case, problem.get("detail", "")))


def beyond(case, detail):
    body = case.body if isinstance(case.body, dict) else {}
    match case.operation.definition.raw["operationId"]:
        case "placeOrder":
            skus = [line["sku"] for line in body["lines"]]
            return len(skus) > len(set(skus)) and "occurs twice" in detail
        case "createTransfer":
            if plain(body["from"]) == plain(body["to"]):
                return "the same account" in detail
            return body["currency"] != "EUR" and "the currency of the transfer" in detail
        case "postTransfer":
            return "must not exceed the held one" in detail
        case "creditWallet" | "payFromWallet":
            if plain(body.get("to")) == plain(case.path_parameters["id"]):
                return "the paying wallet itself" in detail
            return body["amount"] > 2**52 and "no balance may exceed its limit" in detail
    return False


def plain(name):
    return str(name).strip("{}").lower()
