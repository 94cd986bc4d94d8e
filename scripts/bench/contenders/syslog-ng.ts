import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { type Contender, launch, until } from './contender.ts';
import { debianLibraries, debianRoot, syslogNgModules } from './debian.ts';
import { lineFeed } from './feeds.ts';

/**
 * Lines over TCP, the message kept as it is, a reliable disk buffer, posts of a thousand values by four workers.
 * TCP is the most it offers: this edition acknowledges no line, and a sender cannot know what it has taken.
 */
const configuration = (port: number, sinkPort: number, folder: string) => `@version: 3.38
options { stats-level(1); use-dns(no); dns-cache(no); };
source s_in {
  network(ip("127.0.0.1") port(${port}) transport("tcp") flags(no-parse)
    max-connections(16) log-iw-size(160000) log-fetch-limit(1000));
};
destination d_http {
  http(url("http://127.0.0.1:${sinkPort}/v1/values") method("POST") headers("content-type: application/json")
    body-prefix("{\\"values\\":[") body("$MESSAGE") delimiter(",") body-suffix("]}")
    batch-lines(1000) batch-timeout(1000) workers(4) time-reopen(1)
    disk-buffer(reliable(yes) disk-buf-size(2147483648) mem-buf-size(10485760) dir("${folder}")));
};
log { source(s_in); destination(d_http); flags(flow-control); };
`;

/** Asks for the statistics as `syslog-ng-ctl` does; gives how many values wait in the destination's buffer. */
function queued(control: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const socket = connect(control, () => socket.write('STATS\n'));
    let text = '';
    socket.on('error', reject).on('data', (chunk) => {
      text += chunk;
      if (!text.endsWith('\n.\n')) return;
      socket.destroy();
      const lines = text.matchAll(/^dst\.http;[^\n]*;queued;(\d+)$/gm);
      resolve([...lines].reduce((sum, [, count]) => sum + Number(count), 0));
    });
  });
}

export function syslogNg(values: number): Contender {
  return {
    name: 'syslog-ng',
    acknowledges: '(none) written',
    values,
    async start(folder, sinkPort, env) {
      const port = await freePort();
      const file = join(folder, 'syslog-ng.conf');
      const control = join(folder, 'control');
      const buffers = join(folder, 'buffer');
      writeFileSync(file, configuration(port, sinkPort, buffers));
      const { child } = launch(
        join(debianRoot, 'usr/sbin/syslog-ng'),
        [
          '-F',
          '--no-caps',
          '-f',
          file,
          '-R',
          join(buffers, 'persist'),
          '-p',
          join(folder, 'pid'),
          '-c',
          control,
        ].concat(`--module-path=${syslogNgModules()}`),
        { ...debianLibraries(), ...env },
      );
      await until(
        'syslog-ng answers',
        () =>
          queued(control).then(
            () => true,
            () => false,
          ),
        { everyMs: 50, child },
      );
      let taken = 0;
      return {
        child,
        files: buffers,
        quietMs: 2_000,
        feed(readings, connections) {
          taken += readings.length;
          const send = lineFeed(port, readings, connections);
          const expected = taken;
          return async () => {
            await send();
            await until('syslog-ng has written all', async () => (await queued(control)) >= expected, {
              everyMs: 10,
              child,
            });
          };
        },
      };
    },
  };
}
