"""Where NATS is, and with which certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from engine.errors import QueueUnavailable


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A NATS server to connect to.

    Attributes:
        url: With user and password, or with a token in their place, if the server wants one.
        ca: A file of certificates that may sign the server's; turns TLS on.
        certificate, key: Files of the client's own, where the server asks for one.
    """

    url: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Give what the connection is encrypted with, if it is.

        Raises:
            QueueUnavailable: A file cannot be read or is none of the kind.
        """
        if self.ca is None and self.certificate is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(str(file) for file in (self.ca, self.certificate, self.key) if file)
            raise QueueUnavailable(
                f"TLS for NATS cannot be set up from {files} ({error.strerror or error}); name"
                " readable PEM files"
            ) from error
        return context
