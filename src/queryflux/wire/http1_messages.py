"""Messages of HTTP/1.1 as http1.py reads them."""


class Request:
    """One request. Names in ``headers`` are lower case; repeated ones are joined with a comma. They are not
    to be changed: requests of a connection may share them. Content-Length is in ``length`` instead.

    It is handed out as soon as its head is known: ``body`` counts only once ``complete`` is set.
    """

    __slots__ = (
        "body",
        "complete",
        "expects_continue",
        "headers",
        "keep_alive",
        "length",
        "method",
        "target",
    )

    def __init__(
        self, method: str, target: str, headers: dict[str, str], length: int | None, keep_alive: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.length = length
        self.keep_alive = keep_alive
        self.expects_continue = False
        self.body = b""
        self.complete = False


class Response:
    """One response. ``pairs`` are the headers as they came, names in lower case, repeats kept apart; in
    ``headers`` repeats are joined with a comma. Content-Length is left out. Neither is to be changed."""

    __slots__ = ("body", "headers", "keep_alive", "pairs", "status")

    def __init__(
        self, status: int, pairs: list[tuple[str, str]], headers: dict[str, str], keep_alive: bool
    ) -> None:
        self.status = status
        self.pairs = pairs
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = b""
