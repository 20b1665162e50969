"""What points to a place or a person rather than saying something: URLs, IP addresses, user names.

Every pattern reads a text of any length in linear time: a run that cannot match is not tried again
from its second character on (the lookbehinds), and what repeats is bounded or has one way to match.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

# The endings of bare domains. Two letters only where they are no English word.
_ENDINGS = "com|org|net|edu|gov|mil|int|info|biz|uk|de|fr|eu|ca|au|jp|ru|cn|nl|es|se|ch|io|tv|ly"
_URL = re.compile(
    r"(?:(?:https?|ftps?)://|(?<![\w.])www\.(?=\w))[^\s<>\"\[\]{}|]+"
    rf"|(?<![\w.@-])(?:[a-z0-9-]{{1,63}}\.)+(?:{_ENDINGS})/[^\s<>\"\[\]{{}}|]*",
    re.IGNORECASE,
)
# What ends a sentence around an address rather than the address.
_CLOSING = ".,;:!?'\u2019\u201d*"


def without_urls(text: str) -> str:
    """The same without addresses that begin with http://, https://, ftp:// or www.

    A bare domain goes only where a path follows (example.org/page): without one it is as often the
    name of a firm, or a full stop without its space.
    """
    return _URL.sub(_after_url, text) if "." in text or "://" in text else text


def _after_url(found: re.Match[str]) -> str:
    url = found[0]
    kept = url.rstrip(_CLOSING)
    if kept.endswith(")") and "(" not in kept:
        kept = kept.rstrip(_CLOSING + ")")
    return f" {url[len(kept) :]}"


_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d|0\d\d)"
_HIDDEN = r"(?:x{1,3}|X{1,3}|\*)"  # as in 192.168.1.xxx, where a site hides the end
_V4 = re.compile(
    rf"(?<![\w.]){_BYTE}\.{_BYTE}\.(?:{_BYTE}\.{_BYTE}|{_BYTE}\.{_HIDDEN}|{_HIDDEN}\.{_HIDDEN})"
    r"(?:/\d{1,2}|:\d{1,5})?(?!\w|\.\w)",
    re.ASCII,
)
_V6 = re.compile(
    r"(?:(?<![\w:.])|(?<=user:|talk:))(?:[0-9a-fx]{1,4}:|::)[0-9a-fx:.]{2,45}"
    r"(?:%\w{1,15}|/\d{1,3})?(?![\w:])",
    re.IGNORECASE | re.ASCII,
)


def without_ip_addresses(text: str) -> str:
    """The same without IP addresses: version 4, version 6, and with their end hidden by x or *.

    A version number of four parts looks the same, and goes too.
    """
    if ":" in text:
        text = _V6.sub(_after_v6, text)
    return _V4.sub(" ", text) if "." in text else text


def _after_v6(found: re.Match[str]) -> str:
    whole = found[0]
    address = re.split("[%/]", whole, maxsplit=1)[0].rstrip(".")
    groups = [group for group in address.split(":") if group]
    # "::bad" is an indented word on a talk page, and an address; two groups are asked for.
    if len(groups) < 2 or address.count(":") < 2:
        return whole
    try:
        IPv6Address(address.lower().replace("x", "0"))
    except ValueError:
        return whole
    return " " + "." * (len(whole) - len(whole.rstrip(".")))


_NAME_END = r"\s|\[\]{}()<>,;:!?\"/#"
_USER = re.compile(
    # [[User talk:Name|Name]], [[Special:Contributions/Name]], {{ping|Name}}
    r"\[\[ ?:?(?:user(?:[ _]talk)?:|special:contributions/)[^\[\]\n]{0,300}\]\]"
    r"|\{\{ ?(?:user|u|ping|re|reply ?to) ?\|[^{}\n]{0,300}\}\}"
    # User:Name, user_talk:Name
    rf"|(?<!\w)user(?:[ _]talk)?:[^{_NAME_END}]+"
    # name@example.org
    r"|(?<![\w.+@-])[\w.+-]{1,64}@\w[\w-]{0,62}(?:\.\w[\w-]{0,62})+"
    # @name, @first.last
    r"|(?<![\w@])@\w+(?:[.-]\w+)*"
    # u/name, /u/name
    r"|(?:(?<![\w/])|(?<=\s))/?u/[\w-]{3,20}(?![\w/-])",
    re.IGNORECASE,
)
_USER_SIGNS = re.compile(r"[@:/|]")


def without_user_names(text: str) -> str:
    """The same without @name, User:Name and [[User talk:Name]] (Wikipedia), u/name (Reddit).

    Mail addresses go too: they name a person. A name of several words outside brackets keeps all
    but its first.
    """
    return _USER.sub(" ", text) if _USER_SIGNS.search(text) else text
