"""A running sandbox for pytest: nothing beside the standard library and the program."""

import json
import subprocess
import urllib.error
import urllib.request

import pytest


class Sandbox:
    def __init__(self, url):
        self.url = url

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/sandbox/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=70) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["errors"][0]["message"]) from None
        return json.loads(text) if text else None

    def expect(self, **expectation):
        return self.ask("POST", "expectations", expectation)["requests"]


@pytest.fixture(scope="session")
def program():
    command = ["tagferry-sandbox", "--listen", "127.0.0.1:0", "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield Sandbox(json.loads(process.stdout.readline())["url"])
        process.terminate()


@pytest.fixture
def sandbox(program):
    program.ask("DELETE", "requests")
    program.ask("DELETE", "faults")
    return program
