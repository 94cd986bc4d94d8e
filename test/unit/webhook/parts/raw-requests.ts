import { createConnection, type Socket } from 'node:net';

/** A raw response without its date. */
export interface RawAnswer {
  status: string;
  headers: Record<string, string>;
  body: string;
}

/** Connection for raw bytes. */
export class RawConnection {
  readonly socket: Socket;
  text = '';
  readonly closed: Promise<void>;

  constructor(port: number) {
    this.socket = createConnection({ port, host: '127.0.0.1' });
    this.socket.on('data', (chunk) => {
      this.text += chunk.toString('latin1');
    });
    this.socket.on('error', () => {});
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  write(text: string): this {
    this.socket.write(text);
    return this;
  }

  /** Returns all responses until the connection was closed. */
  async answers(): Promise<RawAnswer[]> {
    await this.closed;
    return answersIn(this.text);
  }
}

function answersIn(text: string): RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let rest = text; rest !== ''; ) {
    const end = rest.indexOf('\r\n\r\n');
    const [first, ...lines] = rest.slice(0, end).split('\r\n');
    const pairs = lines.map((line) => [line.split(': ')[0]!.toLowerCase(), line.slice(line.indexOf(': ') + 2)]);
    const { date: _, ...headers } = Object.fromEntries(pairs) as Record<string, string>;
    const length = Number(headers['content-length'] ?? 0);
    answers.push({
      status: first!.replace('HTTP/1.1 ', ''),
      headers,
      body: rest.slice(end + 4, end + 4 + length),
    });
    rest = rest.slice(end + 4 + length);
  }
  return answers;
}

/** Returns a request as text, with `Connection: close` by default. */
export function requestText(
  line: string,
  headers: Readonly<Record<string, string | number | undefined>>,
  body = '',
): string {
  const given = { Host: 'x', Connection: 'close', ...headers };
  const lines = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}: ${value}`]));
  return `${[`${line} HTTP/1.1`, ...lines].join('\r\n')}\r\n\r\n${body}`;
}
