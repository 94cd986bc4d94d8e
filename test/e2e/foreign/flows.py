"""Shared by the flows of section 5 with all libraries: the user at the sign-in page, and the report."""

import html
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

URL = sys.argv[1]
REDIRECT = "http://127.0.0.1:9/callback"
CLIENT_ID = "sandbox-client"
CLIENT_SECRET = "sandbox-secret"
GATEWAY = {"username": "gateway@sandbox.example", "password": "gateway-password"}
PERSON = {"username": "anna@sandbox.example", "password": "anna-password"}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args):
        return None


def sign_in(address):
    """Signs in like a user in a browser, and returns the redirect address."""
    page = urllib.request.urlopen(address).read().decode()
    fields = {
        name: html.unescape(value)
        for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page)
        if name != "deny"
    }
    form = urllib.parse.urlencode({**fields, **PERSON}).encode()
    try:
        urllib.request.build_opener(NoRedirect).open(f"{URL}/app/id/sign_in", form)
    except urllib.error.HTTPError as answer:
        assert answer.code == 302, answer.read()
        # The libraries require an https redirect address.
        return answer.headers["location"].replace("http://", "https://", 1)
    raise AssertionError("the sign-in page did not redirect")


def shown(token):
    """Returns the members of a token response that section 2.1 specifies."""
    return {name: token.get(name) for name in ("token_type", "expires_in")}


def report(**outcomes):
    print(json.dumps(outcomes))
