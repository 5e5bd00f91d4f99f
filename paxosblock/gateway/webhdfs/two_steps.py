"""Operations with bytes take two steps: a request without a body names the address for them.

In HDFS that is the address of a DataNode; here it is the gateway itself, by the name at which the
program has reached it, with `data=true`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.webhdfs.hadoop_json import answered
from paxosblock.gateway.webhdfs.operation_table import HadoopCall

DATA: Final = "data"
_NOT_REPEATED: Final = (DATA, "noredirect")


def is_first_step(call: HadoopCall) -> bool:
    """True if the bytes are still to come."""
    return not call.parameters.flag(DATA)


def redirected(call: HadoopCall) -> Answer:
    """Return the answer that names the address for the bytes."""
    raw_path, parts = call.exchange.target.partition("?")[0], call.query.split("&")
    kept = [
        part
        for part in parts
        if part and unquote(part.partition("=")[0]).lower() not in _NOT_REPEATED
    ]
    query = "&".join((*kept, f"{DATA}=true"))
    location = f"{call.exchange.origin}{raw_path}?{query}"
    if call.parameters.flag("noredirect"):
        return answered({"Location": location})
    return Answer(307, b"", {"Location": location})
