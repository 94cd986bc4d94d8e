import { createServer } from 'node:net';
import { formatListenAddress } from '../../config/listen-address.ts';
import type { ListenAddress } from '../../config/settings.ts';
import { codeOf, messageOf } from '../../errors.ts';
import { type CheckLine, type Consultation, failure, ok } from './finding.ts';

/** Whether the daemon could listen where it is told to. While one runs the addresses are its own, and there is nothing to try. */
export async function checkListeners({ settings, daemon, daemonTrouble }: Consultation): Promise<CheckLine[]> {
  if (daemon || daemonTrouble !== undefined) return [];
  const lines: CheckLine[] = [];
  for (const [key, address] of [
    ['INGEST_LISTEN', settings.ingestListen],
    ['WEBHOOK_LISTEN', settings.webhookListen],
    ['OPS_LISTEN', settings.opsListen],
  ] as const) {
    if (address && 'port' in address) lines.push(await checkOne(key, address));
  }
  return lines;
}

async function checkOne(key: string, address: Extract<ListenAddress, { port: number }>): Promise<CheckLine> {
  const place = formatListenAddress(address);
  const trouble = await listenTrouble(address);
  if (trouble === undefined) return ok('listener', `${key} ${place} is free`);
  const next: Readonly<Record<string, string>> = {
    EADDRINUSE: `See who has it: \`ss -ltnp 'sport = :${address.port}'\`, or set ${key} to another port.`,
    EACCES: `Ports below 1024 are not for this user: set ${key} to a higher one.`,
    EADDRNOTAVAIL: `This machine has no such address: set ${key} to one of \`ip address\`.`,
  };
  return failure(
    'listener',
    `${key} cannot listen on ${place} (${trouble})`,
    next[trouble] ?? `Set ${key} to another address.`,
  );
}

function listenTrouble({ host, port }: { host: string; port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => resolve(codeOf(error) ?? messageOf(error)));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
