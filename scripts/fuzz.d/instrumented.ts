import { parseAst } from 'rolldown/parseAst';

/** Counts which branches an input goes through: a byte each, bumped in the code itself, because asking V8 costs a millisecond. */
export const COUNTERS = '__fuzzCounters';

export interface Instrumented {
  code: string;
  /** Counters used, those before included. */
  counters: number;
  /** Short texts and numbers of letters that stand in the code: words that an input may need to get further. */
  words: string[];
}

interface Node {
  type: string;
  start: number;
  end: number;
}

/** TypeScript with a counter in every function, branch and loop. Text is only added, on the lines that there are. */
export function instrument(code: string, firstCounter: number): Instrumented {
  const insertions = new Insertions(code, firstCounter);
  insertions.visit(parseAst(code, { lang: 'ts', astType: 'ts' }) as unknown as Node);
  return { code: insertions.written(), counters: insertions.counter, words: [...insertions.words] };
}

class Insertions {
  readonly #code: string;
  readonly #openers: [number, string][] = [];
  readonly #closers: [number, string][] = [];
  /** What is to be written behind a node when all in it has been. */
  readonly #behind = new Map<Node, string[]>();
  readonly words = new Set<string>();
  counter: number;

  constructor(code: string, firstCounter: number) {
    this.#code = code;
    this.counter = firstCounter;
  }

  written(): string {
    // Where one thing ends and the next begins, the end comes first; what lies within ends before what it lies in.
    const all = [...this.#closers, ...this.#openers].sort(([one], [other]) => one - other);
    let at = 0;
    let text = '';
    for (const [place, insertion] of all) {
      text += this.#code.slice(at, place) + insertion;
      at = place;
    }
    return text + this.#code.slice(at);
  }

  visit(node: Node): void {
    const found = node as unknown as Record<string, unknown>;
    switch (node.type) {
      case 'Literal':
        this.#learn(found.value);
        break;
      case 'TemplateElement':
        this.#learn((found.value as { cooked?: string }).cooked);
        break;
      case 'IfStatement':
        this.#statement(found.consequent as Node);
        if (found.alternate) this.#statement(found.alternate as Node);
        break;
      case 'ConditionalExpression':
        this.#expression(found.consequent as Node);
        this.#expression(found.alternate as Node);
        break;
      case 'LogicalExpression':
        this.#expression(found.right as Node);
        break;
      case 'SwitchCase': {
        const [first] = found.consequent as Node[];
        if (first) this.#openers.push([first.start, this.#bump()]);
        break;
      }
      case 'ArrowFunctionExpression':
        if ((found.body as Node).type === 'BlockStatement') this.#statement(found.body as Node);
        else this.#expression(found.body as Node);
        break;
      case 'FunctionDeclaration':
      case 'FunctionExpression':
      case 'ForStatement':
      case 'ForOfStatement':
      case 'ForInStatement':
      case 'WhileStatement':
      case 'CatchClause':
        if (found.body) this.#statement(found.body as Node);
        break;
    }
    this.#visitMembers(found);
    if (node.type === 'IfStatement' && !found.alternate) {
      this.#closers.push([(found.consequent as Node).end, ` else {${this.#bump()}}`]);
    }
    for (const text of this.#behind.get(node) ?? []) this.#closers.push([node.end, text]);
  }

  #visitMembers(found: Record<string, unknown>): void {
    for (const [name, member] of Object.entries(found)) {
      if (name === 'typeAnnotation' || name === 'typeArguments' || name === 'returnType') continue;
      for (const child of Array.isArray(member) ? member : [member]) {
        if (typeof (child as Node | null)?.type === 'string' && !(child as Node).type.startsWith('TSType')) {
          this.visit(child as Node);
        }
      }
    }
  }

  #bump(): string {
    return `${COUNTERS}[${this.counter++}]++;`;
  }

  #statement(node: Node): void {
    if (node.type === 'BlockStatement') {
      this.#openers.push([node.start + 1, this.#bump()]);
    } else {
      this.#openers.push([node.start, `{${this.#bump()}`]);
      this.#whenLeft(node, '}');
    }
  }

  #expression(node: Node): void {
    this.#openers.push([node.start, `(${this.#bump().slice(0, -1)},`]);
    this.#whenLeft(node, ')');
  }

  /** Written behind the node, after whatever is written behind what lies in it. */
  #whenLeft(node: Node, text: string): void {
    this.#behind.set(node, [...(this.#behind.get(node) ?? []), text]);
  }

  #learn(value: unknown): void {
    if (typeof value === 'string' && value.length > 0 && value.length <= 40) this.words.add(value);
  }
}
