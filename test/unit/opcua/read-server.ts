import { systemClock } from '../../../src/base/clock.ts';
import type {
  AnswerLine,
  FoundNode,
  HistoryPage,
  Item,
  Question,
  ReaderLine,
  Reading,
  ReadValue,
} from '../../../src/opcua/protocol.ts';
import { Reader } from '../../../src/opcua/reader.ts';

/** Everything that the reader program reads from a server. */
export interface ReadServer {
  /** Values of the first messages of a subscription. */
  notified: ReadValue[];
  rejected: readonly (readonly [item: number, why: string])[];
  found: FoundNode[];
  /** Items with history. */
  history: readonly number[];
  /** History of the first item. */
  past: Reading[];
  pages: number;
}

const MESSAGES = 3;
const END_MS = Date.UTC(2100, 0, 1);

/** Reads the items and the tree below `Line` once. `folder`: for the certificate of the client. */
export async function readServer(url: string, items: readonly Item[], folder: string): Promise<ReadServer> {
  const endpoint = { url, policy: 'None', mode: 'None', identity: { folder }, trustFolder: folder } as const;
  const lines: ReaderLine[] = [];
  let wake = Promise.withResolvers<void>();
  const reader = new Reader((line) => {
    lines.push(line);
    if ('message' in line && line.message) reader.stored(line.message);
    wake.resolve();
    wake = Promise.withResolvers();
  }, systemClock);
  const until = async (isEnough: () => boolean) => {
    while (!isEnough()) await wake.promise;
  };
  let asked = 0;
  const ask = async (question: Question): Promise<AnswerLine[]> => {
    const number = ++asked;
    await reader.answer(number, question);
    return lines.filter((line): line is AnswerLine => 'answer' in line && line.answer === number);
  };
  try {
    reader.open({ endpoint, items, namespaces: [], isTest: true });
    const messages = () => lines.filter((line) => 'message' in line).length;
    await until(() => messages() >= MESSAGES);
    const found = (await ask({ scan: endpoint, below: ['Line'] })).flatMap((line) => (line.found ? [line.found] : []));
    const pages: HistoryPage[] = [];
    do {
      const point = pages.at(-1)?.point;
      const history = { item: items[0]!, fromMs: 0, untilMs: END_MS, ...(point === undefined ? {} : { point }) };
      pages.push(...(await ask({ history })).flatMap((line) => (line.page ? [line.page] : [])));
    } while (pages.at(-1)?.point !== undefined);
    return {
      notified: lines.flatMap((line) => ('values' in line ? line.values : [])),
      rejected: lines.flatMap((line) => ('rejected' in line ? line.rejected : [])),
      found,
      history: lines.flatMap((line) => ('history' in line ? line.history : [])),
      past: pages.flatMap(({ past }) => past),
      pages: pages.length,
    };
  } finally {
    await reader.stop();
  }
}
