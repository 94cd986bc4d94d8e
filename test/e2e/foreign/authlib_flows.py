"""Runs the flows of section 5 with authlib, an independent client."""

from authlib.common.security import generate_token
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.requests_client import OAuth2Session

from flows import CLIENT_ID, CLIENT_SECRET, GATEWAY, REDIRECT, URL, report, shown, sign_in


def refused(act):
    try:
        act()
    except OAuthError as error:
        return error.error
    return "accepted"


def machine_session(method="client_secret_basic", secret=CLIENT_SECRET):
    return OAuth2Session(CLIENT_ID, secret, token_endpoint_auth_method=method)


machine = machine_session()
token = machine.fetch_token(f"{URL}/oauth/token", grant_type="password", **GATEWAY)
in_body = machine_session("client_secret_post").fetch_token(f"{URL}/oauth/token", grant_type="password", **GATEWAY)
used = machine.get(f"{URL}/v1/client_applications/current")
old = token["refresh_token"]
renewed = machine.refresh_token(f"{URL}/oauth/token", refresh_token=old)
again = refused(lambda: machine.refresh_token(f"{URL}/oauth/token", refresh_token=old))
revoked = machine.revoke_token(f"{URL}/oauth/revoke", token=renewed["access_token"])
after = machine.get(f"{URL}/v1/client_applications/current")


def code_flow(**how):
    verifier = generate_token(64) if how else None
    person = OAuth2Session(CLIENT_ID, redirect_uri=REDIRECT, **(how or {"client_secret": CLIENT_SECRET}))
    address, state = person.create_authorization_url(f"{URL}/app/id/sign_in", code_verifier=verifier)
    answer = sign_in(address)
    more = {"code_verifier": verifier} if verifier else {}
    got = person.fetch_token(f"{URL}/app/id/oauth/token", authorization_response=answer, state=state, **more)
    return got, person.get(f"{URL}/v2/permissions").status_code


web, web_used = code_flow()
mobile, mobile_used = code_flow(token_endpoint_auth_method="none", code_challenge_method="S256")

report(
    password=shown(token),
    password_in_body=shown(in_body),
    used=used.status_code,
    renewed=renewed["access_token"] != token["access_token"],
    refreshed_twice=again,
    revoked=revoked.status_code,
    used_after_revocation=after.status_code,
    wrong_secret=refused(
        lambda: machine_session(secret="wrong").fetch_token(f"{URL}/oauth/token", grant_type="password", **GATEWAY)
    ),
    code=shown(web),
    code_used=web_used,
    pkce=shown(mobile),
    pkce_used=mobile_used,
)
