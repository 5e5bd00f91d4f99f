"""Write docs/webhdfs.md: `make generate`.

The table of operations is made from the functions that answer them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from paxosblock.gateway.webhdfs.operation_table import LACKING
from paxosblock.gateway.webhdfs.remote_exceptions import JavaError
from paxosblock.gateway.webhdfs.webhdfs_door import OPERATIONS
from tests.make_api import REPOSITORY
from tests.outside.webhdfs.differences import BY_TIME, HADOOP, HDFSCLI

PAGE: Final = REPOSITORY / "docs" / "webhdfs.md"

HEAD: Final = """# WebHDFS

Made by `make generate` from the code; a test compares them.

A *gateway* speaks WebHDFS v1, the protocol over HTTP by which programs reach HDFS without its
libraries. Hadoop's own `hdfs dfs`, Spark's readers and writers and HdfsCLI come in unmodified; a
file is the same file through every door.

```console
$ paxosblock cluster up
$ curl 'http://127.0.0.1:9874/webhdfs/v1/?op=LISTSTATUS&user.name=me'
$ curl -L -T notes.txt "http://127.0.0.1:9874/webhdfs/v1/notes.txt?op=CREATE&user.name=$USER"
$ curl "http://127.0.0.1:9874/webhdfs/v1/notes.txt?op=OPEN&user.name=$USER"
$ hdfs dfs -ls webhdfs://127.0.0.1:9874/
$ paxosblock gateway --namenodes nn1:9870,nn2:9870,nn3:9870    # on any machine, at port 14000
```

```python
spark.read.parquet("webhdfs://127.0.0.1:9874/table")
df.write.parquet("webhdfs://127.0.0.1:9874/table")
```

A gateway keeps nothing: start as many as you like, on any machine that reaches the NameNodes and
DataNodes. One that is killed loses what was on its way through it. `GET /healthz`, `/metrics` and
the status page at `/` are those of every node; its settings are `[gateway]` in
[settings.md](settings.md), and those by which it calls the cluster `[client]`.

## Who asks

Each request is made as the user who asks, and the NameNodes check it as any other
([security.md](security.md)).

* Where nothing proves who calls the cluster, the user is the one that `user.name` names, as in
  HDFS without Kerberos (Hadoop's client sends `HADOOP_USER_NAME`), or `nobody`.
* A gateway that has a proof of its own (a certificate, a token, the access secret) lends it to no
  caller. Each brings the token of a user, which `paxosblock admin token issue` makes, as
  `Authorization: Bearer` or as `delegation=`; without one the answer is 401. The gateway sends
  that token on, and may no more than its user.
* `doas` lets a program act for its users, as Hue, Knox and Oozie do, where `proxy_users` says so:
  who may act for whom, and from which hosts, as `hadoop.proxyuser.*` does in HDFS. Everybody else
  is refused with Hadoop's words. A rule names users, not groups, which only NameNodes know. Where
  users prove who they are nobody acts for another one: a gateway with `proxy_users` does not start.

```console
$ export PAXOSBLOCK_GATEWAY_PROXY_USERS='hue@127.0.0.1,10.1.0.0/16=ann,bob;knox@10.0.0.7=*'
$ paxosblock gateway --namenodes nn1:9870
$ curl 'http://127.0.0.1:14000/webhdfs/v1/?op=LISTSTATUS&user.name=hue&doas=ann'
```

* A page in a browser gets nothing: no request with `Origin`, and where names are believed, none
  whose `Host` is no name of the gateway (`--advertise` adds one).

With a certificate (`https_cert`) the gateway speaks TLS at its ports, and nothing else; without one
it listens beyond its machine only with `--insecure`, and a proxy before it may speak TLS. Programs
must believe its authority:

```console
$ paxosblock setup tls ./tls --gateways gw1=10.0.0.9    # ca.pem, and gateway-gw1.pem for gw1
$ PAXOSBLOCK_GATEWAY_HTTPS_CERT=tls/gateway-gw1.pem paxosblock gateway --namenodes nn1:9870
$ curl --cacert tls/ca.pem 'https://gw1:14000/webhdfs/v1/?op=LISTSTATUS&user.name=me'
$ keytool -importcert -noprompt -file tls/ca.pem -keystore trusted -storepass changeit
$ believed='-Djavax.net.ssl.trustStore=trusted -Djavax.net.ssl.trustStorePassword=changeit'
$ export HADOOP_OPTS="$believed"
$ hdfs dfs -ls swebhdfs://gw1:14000/
```

## Files

* CREATE and APPEND take two steps, as HDFS has them: the first request is answered with an
  address, which is that of the gateway by the name that the program used, and the second brings
  the bytes. OPEN is answered at once, and so is a second step without the first (`data=true`).
* A new file is there from the beginning of its CREATE, open until the last byte came. If the
  request breaks off, it is deleted. If the gateway is killed, the file is closed when its lease
  ends, with what had been acknowledged, as when a DataNode of HDFS dies.
* A CREATE that replaces a file does so when its last byte came, in one step. Until then, and if it
  breaks off, the old file is there.
* An APPEND that breaks off leaves the bytes that came.
* If the answer to a RENAME, DELETE, CONCAT, SETXATTR, REMOVEXATTR, RENAMESNAPSHOT or DELETESNAPSHOT
  did not arrive, the next one who asks the same hears that it was done, at this or another gateway:
  Hadoop's client sends it again. The gateway sees that the system of the program did not
  acknowledge all of the answer, and keeps that in the cluster for five minutes, for the same user
  at the same host. Of several programs that rename or delete one file, one hears that it did. That
  there was nothing to rename, as HDFS answers then, is heard only if the gateway was killed between
  the change and its answer, or if a proxy lost the answer.
* OPEN is answered when the first bytes came: of a file that is replaced until then the new one is
  sent. No answer is longer or shorter than its `Content-Length` says: where a reader cannot go on,
  as when the file is deleted or replaced under it, the connection is cut.
* Bytes on their way take room of `request_memory`, which counts the memory that they take: 4.1 MiB
  for one who writes, 4 MiB for one who reads, less for a short file. A request for which there is
  none is asked to try again. A gateway alone takes about 60 MiB, and 8 KiB for each connection.
* Hadoop's client takes several gateways for NameNodes of HDFS under one name (below). One that is
  dead is passed over; where it dies under a reader, the reader goes on at the next one. A file that
  was being written through it must be written again: Hadoop's client repeats no write.

```
dfs.nameservices = gateways
dfs.ha.namenodes.gateways = gw1,gw2
dfs.namenode.http-address.gateways.gw1 = gw1:14000
dfs.namenode.http-address.gateways.gw2 = gw2:14000
dfs.client.failover.proxy.provider.gateways =
    org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider
```

With them `webhdfs://gateways/path` names a file; in Spark each begins with `spark.hadoop.`.
"""

OPERATIONS_HEAD: Final = """## Operations

Names of parameters, `true` and `false` may be in any case, as may the name of the operation.

| operation | method | what it does |
|---|---|---|"""

LACKING_HEAD: Final = """
Refused by name with `UnsupportedOperationException`, and nothing is done:
"""

DIFFERENCES_HEAD: Final = """
## Beside HDFS

`python -m tests.outside.webhdfs` runs suites of others at a gateway, and at HDFS's own WebHDFS from
Maven's jars: the tests of a file system that Hadoop 3.4.2 brings (contract tests, those of WebHDFS,
main operations), and those of HdfsCLI's client, with one address and with two
(`http://a;http://b`), the first of them dead. What passes there passes here, but on purpose:

| what differs | tests |
|---|---|"""

ERRORS_HEAD: Final = """
## Refusals

They have Hadoop's JSON: `{"RemoteException": {"exception", "javaClassName", "message"}}`.

| exception | status |
|---|---|"""


def page() -> str:
    """Return the page."""
    parts = _operations(), _lacking(), _beside(), _refusals()
    return "\n".join([HEAD, OPERATIONS_HEAD, *itertools.chain(*parts), ""])


def _operations() -> Iterator[str]:
    for each in sorted(OPERATIONS.values(), key=lambda each: each.name):
        words = " ".join((each.run.__doc__ or "").split())
        yield f"| {each.name} | {each.verb} | {words} |"


def _lacking() -> Iterator[str]:
    yield LACKING_HEAD
    line = ""
    names = sorted(LACKING)
    for name in names:
        word = f"{name}{'.' if name == names[-1] else ','}"
        if len(line) + len(word) > 98:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line


def _beside() -> Iterator[str]:
    yield DIFFERENCES_HEAD
    for each in HADOOP + HDFSCLI:
        tests = ", ".join(f"`{test}`" for test in each.tests)
        yield f"| {each.why} | {tests} |"
    yield "\nThese pass or fail at either server, by how soon a request arrives:\n"
    yield from (f"* `{test}`" for test in sorted(BY_TIME))


def _refusals() -> Iterator[str]:
    yield ERRORS_HEAD
    for kind in sorted(JavaError, key=lambda kind: (kind.status, kind.simple_name)):
        yield f"| `{kind.full_name}` | {int(kind.status)} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
