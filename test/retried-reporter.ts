import type { Reporter, TestCase } from 'vitest/node';

/** Lists tests that passed only after a retry at the end of a run. */
export default class RetriedReporter implements Reporter {
  readonly #retried: string[] = [];

  onTestCaseResult(test: TestCase): void {
    if (test.result().state !== 'passed' || (test.diagnostic()?.retryCount ?? 0) === 0) return;
    this.#retried.push(`${test.module.relativeModuleId} > ${test.fullName}`);
  }

  onTestRunEnd(): void {
    if (this.#retried.length === 0) return;
    process.stdout.write(`\nPassed only on the second try:\n${this.#retried.map((name) => `  ${name}`).join('\n')}\n`);
  }
}
