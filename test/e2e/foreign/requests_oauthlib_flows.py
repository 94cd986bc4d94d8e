"""Runs the flows of section 5 with requests-oauthlib, an independent client."""

import os

os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"

from oauthlib.oauth2 import LegacyApplicationClient, WebApplicationClient
from oauthlib.oauth2.rfc6749.errors import OAuth2Error
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

from flows import CLIENT_ID, CLIENT_SECRET, GATEWAY, REDIRECT, URL, report, shown, sign_in


def password(**how):
    session = OAuth2Session(client=LegacyApplicationClient(client_id=CLIENT_ID))
    return session, session.fetch_token(f"{URL}/oauth/token", **GATEWAY, **how)


def refused(act):
    try:
        act()
    except OAuth2Error as error:
        return error.error
    return "accepted"


machine, token = password(auth=HTTPBasicAuth(CLIENT_ID, CLIENT_SECRET))
_, in_body = password(client_id=CLIENT_ID, client_secret=CLIENT_SECRET, include_client_id=True)
used = machine.get(f"{URL}/v1/client_applications/current")
old = token["refresh_token"]
credentials = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
renewed = machine.refresh_token(f"{URL}/oauth/token", refresh_token=old, **credentials)
again = refused(lambda: machine.refresh_token(f"{URL}/oauth/token", refresh_token=old, **credentials))
machine.token = renewed
revoked = machine.request(
    "POST", f"{URL}/oauth/revoke", data={"token": renewed["access_token"], **credentials}, withhold_token=True
)
after = machine.get(f"{URL}/v1/client_applications/current")

person = OAuth2Session(client=WebApplicationClient(CLIENT_ID), redirect_uri=REDIRECT)
address, state = person.authorization_url(f"{URL}/app/id/sign_in")
web = person.fetch_token(
    f"{URL}/app/id/oauth/token",
    authorization_response=sign_in(address),
    client_secret=CLIENT_SECRET,
    include_client_id=True,
)
seen = person.get(f"{URL}/v2/permissions")

report(
    password=shown(token),
    password_in_body=shown(in_body),
    used=used.status_code,
    renewed=renewed["access_token"] != token["access_token"],
    refreshed_twice=again,
    revoked=revoked.status_code,
    used_after_revocation=after.status_code,
    wrong_secret=refused(lambda: password(auth=HTTPBasicAuth(CLIENT_ID, "wrong"))),
    code=shown(web),
    code_used=seen.status_code,
)
