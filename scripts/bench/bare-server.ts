/** Baseline for `POST /v1/values`: parses the JSON, commits one log row for all waiting requests, responds with 204. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { bareLog } from './bare-loops.ts';

const log = bareLog(process.argv[2]!);
const catalogue = new SeriesCatalogue();
let waiting = new ValueColumns();
let answers: (() => void)[] = [];

function commit(): void {
  const [columns, ready] = [waiting, answers];
  waiting = new ValueColumns();
  answers = [];
  log.commit(columns);
  for (const answer of ready) answer();
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { values } = JSON.parse(Buffer.concat(chunks).toString()) as {
      values: { asset: number; key: string; unit: number; value: number; timestamp: string }[];
    };
    for (const { asset, key, unit, value, timestamp } of values) {
      waiting.add(catalogue.idOf(asset, key, undefined, { id: unit }), Date.parse(timestamp), value, 0);
    }
    if (answers.length === 0) setImmediate(commit);
    answers.push(() => {
      response.writeHead(204);
      response.end();
    });
  });
});
server.listen(0, '127.0.0.1', () => console.log(`listening ${(server.address() as AddressInfo).port}`));
