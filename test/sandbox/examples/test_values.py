import json
import threading
import urllib.parse
import urllib.request

import pytest

KEY = {"client_id": "sandbox-client", "client_secret": "sandbox-secret"}
LOGIN = {"username": "gateway@sandbox.example", "password": "gateway-password"}


def post_flow(url, asset, value):
    """The client that is tested: yours stands here."""
    form = urllib.parse.urlencode({"grant_type": "password", **KEY, **LOGIN}).encode()
    token = json.load(urllib.request.urlopen(f"{url}/oauth/token", form))["access_token"]
    data = [{"timestamp": "2026-11-22T00:00:00Z", "value": value}]
    body = json.dumps({"values": [{"key": "flow", "data": data}]}).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(f"{url}/v1/assets/{asset}/values", body, headers)).status


def test_posts_a_flow_within_5_s(sandbox):
    client = threading.Thread(target=post_flow, args=(sandbox.url, 881, 12.5))
    client.start()
    (found,) = sandbox.expect(method="POST", asset=881, withinMs=5000)
    client.join()
    assert found["request"]["body"]["values"][0]["data"][0]["value"] == 12.5


def test_is_told_what_came_instead(sandbox):
    post_flow(sandbox.url, 882, 12.5)
    with pytest.raises(AssertionError, match="POST of asset 881 did not come .*/v1/assets/882/values: 204"):
        sandbox.expect(method="POST", asset=881, withinMs=10)


def test_is_refused_while_the_platform_is_busy(sandbox):
    sandbox.ask("POST", "faults", {"asset": 881, "status": 503, "times": 1})
    with pytest.raises(urllib.error.HTTPError, match="503"):
        post_flow(sandbox.url, 881, 12.5)
