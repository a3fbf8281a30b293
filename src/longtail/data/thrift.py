"""What Parquet files say of themselves, in Thrift's compact protocol: footers and page headers.

Arrow's own view of a damaged footer ends the whole process (a C++ exception that pyarrow 26 does
not catch), and it does not show the headers of pages.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 12
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
INTEGERS = (4, 5, 6)


class DamagedError(EOFError):
    """Bytes that are not what they should be."""

    def __init__(self) -> None:
        super().__init__("not a sound Parquet file: a damaged header or footer")


class CutError(IndexError):
    """Bytes that end too early."""


class Reader:
    """Reads structures as dictionaries of field numbers, lists as lists, from `at` on."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise DamagedError
        if kind in INTEGERS:
            return self._zigzag()
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth)
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        raise DamagedError

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        kind, count = head & 15, head >> 4
        if count == 15:
            count = self._varint()
        if count > len(self.content) - self.at:
            raise CutError  # Every item has at least one byte.
        if kind in (TRUE, FALSE):
            return [self._byte() == TRUE for _ in range(count)]
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        try:
            byte = self.content[self.at]
        except IndexError as error:
            raise CutError from error
        self.at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.content):
            raise CutError
        return self.content[start : self.at]

    def _varint(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise DamagedError

    def _zigzag(self) -> int:
        found = self._varint()
        return found >> 1 ^ -(found & 1)
