import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parseAst } from 'vitest/node';

/**
 * Every event name that the source can log, read from its syntax trees: the literal value of an `event` member, whatever object
 * it stands in; names handed to a method that logs (`#log`, `again`, `over`); and the few that are put together, which are told here
 * one by one. What cannot be read is reported, so that a new way of writing a name does not escape.
 */
export interface FoundEvents {
  /** Name to the levels at which it is surely logged; empty where the level is chosen elsewhere. */
  events: Map<string, Set<string>>;
  /** `file:line: what`, for a person to look at. */
  unreadable: string[];
  /** `file:line: what`: members of a line that are written otherwise than docs/logs.md says: camelCase, `error` and `code`. */
  misnamed: string[];
  /** `file:line: message`: messages that begin with a capital, or end as a sentence does. */
  misworded: string[];
}

const SRC = join(import.meta.dirname, '../../src');
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'];
const NAME = /^[a-z]+\.[a-z0-9_]+$/;
/** Methods that put a name given to them into a line. */
const TELLERS = ['#log', 'again', 'over', '#tell', '#say'];

/** Names put together, as the source writes them, and what they come to. */
const COMPOSED: Readonly<Record<string, readonly string[]>> = {
  '`reaction.${reason}`': ['reaction.expired', 'reaction.cooldown'],
};
/** Where an `event` member is no literal and no mistake: the teller that gets the name from its callers, or no log at all. */
const PASSED_ON = [
  'config/event-outline.ts',
  'sources/trouble-log.ts',
  'reactions/reaction-run.ts',
  'uplink/sender.ts',
  'sandbox/events/plant-changes.ts',
  'sandbox/permissions/visibility.ts',
];

interface Node {
  type: string;
  start: number;
  [member: string]: unknown;
}

export function findLogEvents(): FoundEvents {
  const found: FoundEvents = { events: new Map(), unreadable: [], misnamed: [], misworded: [] };
  for (const entry of readdirSync(SRC, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.ts')) continue;
    const path = join(entry.parentPath, entry.name);
    const text = readFileSync(path, 'utf8');
    const tree = parseAst(text, { lang: 'ts' } as never) as unknown as Node;
    new Collector(relative(SRC, path), text, found).walk(tree);
  }
  return found;
}

class Collector {
  readonly #file: string;
  readonly #text: string;
  readonly #found: FoundEvents;

  constructor(file: string, text: string, found: FoundEvents) {
    this.#file = file;
    this.#text = text;
    this.#found = found;
  }

  walk(node: Node): void {
    if (node.type === 'ObjectExpression') this.#object(node);
    if (node.type === 'CallExpression') this.#call(node);
    for (const [key, value] of Object.entries(node)) {
      if (key === 'parent') continue;
      for (const child of Array.isArray(value) ? value : [value]) {
        if (typeof child === 'object' && child !== null && typeof (child as Node).type === 'string')
          this.walk(child as Node);
      }
    }
  }

  #object(node: Node): void {
    const member = memberOf(node, 'event');
    if (!member) return;
    const names = this.#namesOf(member);
    for (const name of names) this.#add(name);
    if (names.length > 0) for (const one of node.properties as Node[]) this.#field(one);
  }

  /** A member of a line: the text of an error is its `error`, the code of one its `code`. */
  #field(member: Node): void {
    if (member.type !== 'Property') return;
    const name = String((member.key as Node).name ?? (member.key as Node).value);
    const value = this.#textOf(member.value as Node);
    const wanted = /^messageOf\(|^error\.message$/.test(value)
      ? 'error'
      : /^codeOf\(|^error\.code$/.test(value)
        ? 'code'
        : name;
    const camelCase = /^[a-z][a-zA-Z0-9]*$/.test(name);
    if (name === wanted && camelCase) return;
    const line = this.#text.slice(0, member.start).split('\n').length;
    this.#found.misnamed.push(`${this.#file}:${line}: ${name}${name === wanted ? '' : `, not ${wanted}`}`);
  }

  /** A message of a line, or what may be one: a word of plain text, in each branch of a choice. */
  #message(message: Node | undefined, call: Node): void {
    if (message?.type === 'ConditionalExpression') {
      this.#message(message.consequent as Node, call);
      this.#message(message.alternate as Node, call);
    }
    const text = message?.type === 'Literal' && typeof message.value === 'string' ? message.value : '';
    if (!/^(?:[A-Z][a-z]+|A) |[^.]\.$/.test(text)) return;
    const line = this.#text.slice(0, call.start).split('\n').length;
    this.#found.misworded.push(`${this.#file}:${line}: ${text}`);
  }

  #call(node: Node): void {
    const callee = node.callee as Node;
    if (callee.type !== 'MemberExpression') return;
    const property = callee.property as Node;
    const name = property.type === 'PrivateIdentifier' ? `#${property.name}` : String(property.name);
    const [first, second, third] = node.arguments as Node[];
    if (name === 'again' || name === 'over') this.#message(name === 'over' ? third : second, node);
    if (!callee.computed && TELLERS.includes(name)) this.#told(name, node.arguments as Node[]);
    const isLevel = callee.computed === true || LEVELS.includes(name);
    if (!isLevel || !/\b#?log(ger)?$/.test(this.#textOf(callee.object as Node)) || !first) return;
    this.#message(second, node);
    if (first.type === 'ObjectExpression') {
      const member = memberOf(first, 'event');
      if (!member && !hasSpread(first)) this.#report(node, 'a line of the log without an event');
      if (member && !callee.computed) for (const event of this.#namesOf(member)) this.#add(event, name);
    } else if (first.type === 'Literal' || first.type === 'TemplateLiteral') {
      this.#report(node, 'a line of the log without an event');
    }
  }

  #told(teller: string, args: Node[]): void {
    for (const arg of args.slice(0, 2)) {
      if (arg.type !== 'Literal' && arg.type !== 'ConditionalExpression' && arg.type !== 'TemplateLiteral') continue;
      for (const name of this.#namesOf(arg, true)) this.#add(teller === 'over' ? `${name}_over` : name);
    }
  }

  #namesOf(value: Node, quietly = false): string[] {
    if (value.type === 'ConditionalExpression') {
      return [...this.#namesOf(value.consequent as Node, quietly), ...this.#namesOf(value.alternate as Node, quietly)];
    }
    if (value.type === 'Literal') return NAME.test(String(value.value)) ? [String(value.value)] : [];
    const composed = COMPOSED[this.#textOf(value)];
    if (composed) return [...composed];
    if (!quietly && !PASSED_ON.includes(this.#file) && this.#mayBeName(value)) {
      this.#report(value, `an event whose name cannot be read: ${this.#textOf(value)}`);
    }
    return [];
  }

  /** Objects and calls are events of another kind; a variable, a member or a template could be a name. */
  #mayBeName(value: Node): boolean {
    return (
      value.type === 'TemplateLiteral' || (value.type === 'Identifier' && !/^(type|event)s?$/i.test(String(value.name)))
    );
  }

  #add(name: string, level?: string): void {
    const levels = this.#found.events.get(name) ?? new Set();
    if (level) levels.add(level);
    this.#found.events.set(name, levels);
  }

  #report(node: Node, what: string): void {
    const line = this.#text.slice(0, node.start).split('\n').length;
    this.#found.unreadable.push(`${this.#file}:${line}: ${what}`);
  }

  #textOf(node: Node): string {
    return this.#text.slice(node.start, node.end as number);
  }
}

function memberOf(object: Node, name: string): Node | undefined {
  const members = object.properties as Node[];
  const found = members.find((one) => one.type === 'Property' && (one.key as Node).name === name);
  return found && (found.value as Node);
}

function hasSpread(object: Node): boolean {
  return (object.properties as Node[]).some((one) => one.type === 'SpreadElement');
}
