"""Names in C: injective, readable, of bounded length.

A name made of letters, digits and underscores without `_x` stays as it is, unless it ends in `_at` as
the re-entrant forms of the interface do (`x_at` beside `x`). Any other is encoded: what
is no letter or digit becomes `_xHH_` (its code point). Encoded names contain `_x`, plain ones do not,
and an encoded name reads back uniquely, so two names never meet. Names over 120 characters keep a
head and get a hash of the whole.
"""

from __future__ import annotations

import hashlib
import re

LIMIT = 120
FILE_LIMIT = 180  # of 255, since `.native.failed.o` and the like come behind
_PLAIN = re.compile(r"[A-Za-z0-9_]*\Z")


def mangle(name: str) -> str:
    """C identifier part (to stand behind a prefix) for any Unicode name."""
    plain = _PLAIN.match(name) and "_x" not in name and not name.endswith("_at")
    out = name if plain else "".join(map(_encode, name))
    if len(out) > LIMIT:
        digest = hashlib.blake2b(name.encode(), digest_size=10).hexdigest()
        out = f"{out[: LIMIT - 24]}_x{digest}_"
    return out


def scoped(prefix: str, name: str) -> str:
    """A mangled name of one program, for symbols that several files share.

    The prefix's length stands before it, as in C++'s mangled names: `net` and `head_x` never meet
    `net_head` and `x`.
    """
    return f"{len(prefix)}{prefix}_{name}"


def file_name(*parts: str) -> str:
    """The parts joined by dots, short enough for every file system with what tools put behind it."""
    whole = ".".join(parts)
    if len(whole) <= FILE_LIMIT:
        return whole
    digest = hashlib.blake2b(whole.encode(), digest_size=10).hexdigest()
    return f"{whole[: FILE_LIMIT - len(parts[-1]) - 22]}-{digest}.{parts[-1]}"


def _encode(ch: str) -> str:
    return ch if ch.isascii() and ch.isalnum() else f"_x{ord(ch):x}_"


def c_string(text: str) -> str:
    """A C string literal of any text, UTF-8."""
    out = []
    for b in text.encode("utf-8", "surrogatepass"):
        ch = chr(b)
        out.append(ch if 32 <= b < 127 and ch not in '"\\?' else f"\\{b:03o}")
    return '"' + "".join(out) + '"'


def comment(text: str) -> str:
    """Text that cannot end a C comment early."""
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /").replace("/*", "/ *")[:200]


def identifier(name: str) -> str:
    """A model's prefix: a C identifier on its own, so it must not start with a digit, nor be the runtime's."""
    out = mangle(name)
    reserved = out == "mb" or out.startswith("mb_")
    return out if (out[:1].isalpha() or out[:1] == "_") and not reserved else "m" + out
