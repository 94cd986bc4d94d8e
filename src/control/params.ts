/** Validation of control route parameters. Each function throws `UsageError` for a value of the wrong type. */
import { UsageError } from '../base/errors.ts';

export type Params = Readonly<Record<string, unknown>>;

export function textIn(params: Params, name: string): string | undefined {
  const value = params[name];
  if (value === undefined || typeof value === 'string') return value;
  throw new UsageError(`${name} must be a string`);
}

export function choiceIn<Choice extends string>(params: Params, name: string, choices: readonly Choice[]) {
  const value = textIn(params, name);
  const found = choices.find((choice) => choice === value);
  if (value !== undefined && found === undefined) throw new UsageError(`${name} must be one of ${choices.join(', ')}`);
  return found;
}

/** Returns a finite number in the range. */
export function numberIn(params: Params, name: string, min = -Infinity, max = Infinity): number | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new UsageError(`${name} must be a number`);
  if (value < min || value > max) throw new UsageError(`${name} must be between ${min} and ${max}`);
  return value;
}

/** Returns a positive integer, such as an ID or a limit. */
export function positiveIn(params: Params, name: string): number | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
  throw new UsageError(`${name.replaceAll('_', '-')} must be a positive integer`);
}

export function requiredIn(params: Params, name: string): number {
  const value = positiveIn(params, name);
  if (value === undefined) throw new UsageError(`${name.replaceAll('_', '-')} is missing`);
  return value;
}

export function textsIn(params: Params, name: string): string[] {
  const value = params[name] ?? [];
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value;
  throw new UsageError(`${name} must be a list of strings`);
}

export function integersIn(params: Params, name: string): number[] {
  const value = params[name];
  if (Array.isArray(value) && value.every((one) => Number.isSafeInteger(one))) return value;
  throw new UsageError(`${name} must be a list of integers`);
}
