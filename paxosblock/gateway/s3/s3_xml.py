"""The XML of S3, written and read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import msgspec

NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
XML: Final = "application/xml"
HEAD: Final = b'<?xml version="1.0" encoding="UTF-8"?>\n'

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\x7f\ufffe\uffff]")
_NOT_PLAIN: Final = re.compile(rf"[&<>]|{_CONTROL.pattern}")
_DECLARES: Final = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)


class Field(msgspec.Struct, frozen=True):
    """An element: a name, and text or further elements."""

    name: str
    content: str | int | bool | Sequence[Field] = ""

    def written(self) -> str:
        """Return it as XML."""
        return f"<{self.name}>{_inside(self.content)}</{self.name}>"


def document(name: str, fields: Iterable[Field], namespace: str = NAMESPACE) -> bytes:
    """Return a document whose root has these fields."""
    return HEAD + root(name, fields, namespace)


def root(name: str, fields: Iterable[Field], namespace: str = NAMESPACE) -> bytes:
    """Return a document without its first line."""
    said = f' xmlns="{namespace}"' if namespace else ""
    inside = "".join(field.written() for field in fields)
    return f"<{name}{said}>{inside}</{name}>".encode()


def _inside(content: str | int | bool | Sequence[Field]) -> str:
    match content:
        case bool():
            return "true" if content else "false"
        case int():
            return str(content)
        case str():
            if not _NOT_PLAIN.search(content):
                return content
            # XML has no such signs. S3 writes them so, and tells programs to ask for
            # encoding-type=url where names may have some.
            return _CONTROL.sub(lambda found: f"&#x{ord(found[0]):x};", escape(content))
    return "".join(field.written() for field in content)


class NoXmlError(Exception):
    """The body of a request is not the XML that it should be."""


def parsed(body: bytes, name: str) -> ElementTree.Element:
    """Return the root of a document, which is called `name`; elements have no namespaces.

    Raises:
        NoXmlError: it is none, or declares something, as no program of S3 does.
    """
    if _DECLARES.search(body):
        raise NoXmlError
    try:
        found = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise NoXmlError from None
    for element in found.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    if found.tag != name:
        raise NoXmlError
    return found


def text_in(element: ElementTree.Element, name: str) -> str:
    """Return the text of an element below another; "" if it is not there."""
    return element.findtext(name) or ""
