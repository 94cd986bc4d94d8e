"""What the flows of section 5 have in common, whatever library walks them: the person at the sign-in page, and the report."""

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
    """A browser and a person: reads the page, fills it in, and gives the address that it is sent to."""
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
        # The libraries want https at the client's end; where it is, is the client's affair.
        return answer.headers["location"].replace("http://", "https://", 1)
    raise AssertionError("the sign-in page redirects nowhere")


def shown(token):
    """What of a token answer section 2.1 names."""
    return {name: token.get(name) for name in ("token_type", "expires_in")}


def report(**outcomes):
    print(json.dumps(outcomes))
