// Runs inside the machine, whose loopback nobody else can reach: fetch.mjs METHOD URL, the body on standard input.
// Prints the status and the body.
const [method, url] = process.argv.slice(2);
let body = '';
for await (const chunk of process.stdin.setEncoding('utf8')) body += chunk;
const headers = { 'content-type': 'application/json' };
const answer = await fetch(url, { method, ...(body === '' ? {} : { body, headers }) });
process.stdout.write(JSON.stringify({ status: answer.status, text: await answer.text() }));
