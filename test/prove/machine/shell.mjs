// Runs as root in the machine that is cut off: executes what is posted, and answers what it printed. Nobody but the host reaches it.
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';

createServer(async (request, response) => {
  let command = '';
  for await (const chunk of request.setEncoding('utf8')) command += chunk;
  execFile('/bin/sh', ['-c', command], { timeout: 120_000, maxBuffer: 16_000_000 }, (error, stdout, stderr) => {
    response.writeHead(error ? 500 : 200).end(stdout + stderr);
  });
}).listen(8499, '0.0.0.0');
