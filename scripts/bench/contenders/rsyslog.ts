import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { type Contender, launch, until } from './contender.ts';
import { debianLibraries, debianRoot, rsyslogModules } from './debian.ts';
import { lineFeed, relpFeed } from './feeds.ts';

interface Way {
  synced: boolean;
  /** RELP acknowledges each message after it was put into the queue; TCP acknowledges nothing. */
  by: 'relp' | 'tcp';
}

/**
 * The queue is the ruleset's own and a disk queue: what the input has handed over is in a file.
 * Debian's rsyslog has no omhttp. Its one output that speaks HTTP is omelasticsearch, which posts the same lines in
 * batches, each with a line before it that names an index.
 */
const configuration = (way: Way, port: number, sinkPort: number, folder: string) => `
global(workDirectory="${folder}" net.enableDNS="off")
module(load="${way.by === 'relp' ? 'imrelp' : 'imptcp'}")
module(load="omelasticsearch")
template(name="line" type="list") { property(name="rawmsg") }
ruleset(name="values" queue.type="Disk" queue.filename="values" queue.size="10000000" queue.maxFileSize="64m"
  queue.checkpointInterval="${way.synced ? 1 : 0}" queue.syncQueueFiles="${way.synced ? 'on' : 'off'}"
  queue.dequeueBatchSize="1000") {
  action(type="omelasticsearch" server="http://127.0.0.1" serverport="${sinkPort}" bulkmode="on"
    searchIndex="values" searchType="" template="line" action.resumeRetryCount="-1" action.resumeInterval="1")
}
input(type="${way.by === 'relp' ? 'imrelp' : 'imptcp'}" address="127.0.0.1" port="${port}" ruleset="values")
`;

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

export function rsyslog(way: Way, values: number): Contender {
  return {
    name: `rsyslog ${way.by.toUpperCase()}${way.synced ? ' synced' : ''}`,
    acknowledges: way.by === 'tcp' ? '(none) written' : `value ${way.synced ? 'synced' : 'written'}`,
    values,
    async start(folder, sinkPort, env) {
      const port = await freePort();
      const file = join(folder, 'rsyslog.conf');
      const queue = join(folder, 'queue');
      writeFileSync(file, configuration(way, port, sinkPort, queue));
      const { child } = launch(
        join(debianRoot, 'usr/sbin/rsyslogd'),
        ['-n', '-f', file, '-i', join(folder, 'pid'), '-M', rsyslogModules()],
        { ...debianLibraries(), ...env },
      );
      await until('rsyslog listens', () => answers(port), { everyMs: 50, child });
      const feed = way.by === 'relp' ? relpFeed : lineFeed;
      return {
        child,
        files: queue,
        quietMs: 2_000,
        feed: (readings, connections) => feed(port, readings, connections),
      };
    },
  };
}
