"""Who may read a process's metrics: whoever shows the token, or is on this machine.

- With the secret, as a peer shows it: a page of elsewhere cannot make a browser send that, so the
  name under which this process is reached does not matter then.
- Without it from this machine alone, and only under a name of loopback. Otherwise a page of
  elsewhere, whose name was made to lead to this machine, could read it in a browser here.
"""

from http import HTTPStatus

from aiohttp import web

from islands.protocol.settings.addresses import is_loopback
from messaging.websocket.security import Keyring, Secret, is_named


def refusal(request: web.BaseRequest, secret: Secret | Keyring | None) -> HTTPStatus | None:
    """Return why a request may not read the metrics; None if it may.

    Args:
        request: the request.
        secret: the secret of this process; None if it has none, and so listens on loopback alone.
    """
    authorization = request.headers.get("Authorization")
    if secret is not None and authorization is not None:
        return None if secret.admits(authorization) else HTTPStatus.UNAUTHORIZED
    if not is_loopback(request.remote or ""):
        return HTTPStatus.UNAUTHORIZED
    named = is_named(request.headers.get("Host", ""), ())
    return None if named else HTTPStatus.MISDIRECTED_REQUEST
