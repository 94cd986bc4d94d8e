/** Which runs `scripts/prove` repeats: runs are identified by part and name. */
import { expect, it } from 'vitest';
import { openTasks, tasksOf } from '../../scripts/prove.d/plan.ts';
import { type Kept, PARTS, resultsOf, type Task } from '../../scripts/prove.d/results.ts';

const HOUR_MS = 3_600_000;
const plan = (seed: number | undefined, soakMs = HOUR_MS) =>
  PARTS.flatMap((part) => tasksOf(part, { quick: false, seed, soakMs }));
const soakOf = (seed: number | undefined, soakMs = HOUR_MS) =>
  tasksOf('soak', { quick: false, seed, soakMs }).map(({ name }) => name);

function kept({ part, name }: Pick<Task, 'part' | 'name'>, wrong: string[] = []): Kept {
  return { part, name, at: '2026-01-02T03:04:05Z', wrong };
}

it('completed runs with a seed are not repeated, including the soak test', () => {
  const tasks = plan(7);
  expect(new Set(tasks.map(({ part }) => part))).toEqual(new Set(PARTS));
  const results = tasks.map((task) => kept(task));
  expect(openTasks(tasks, results)).toEqual([]);
  expect(openTasks(tasks, [])).toEqual(tasks);
  // The control of the fast power cut has no seed, so one run is sufficient.
  const others = plan(1_000);
  const left = others.filter(({ part, name }) => !(part === 'plug' && name.startsWith('control')));
  expect(openTasks(others, results)).toEqual(left);
});

it('failed runs and soak tests shorter than requested are repeated', () => {
  const [task] = tasksOf('soak', { quick: false, seed: 7, soakMs: HOUR_MS });
  expect(openTasks([task!], [kept(task!, ['1 values missing'])])).toEqual([task]);
  const [shorter] = soakOf(7, 60_000);
  expect(openTasks([task!], [kept({ part: 'soak', name: shorter! })])).toEqual([task]);
});

it('report shows the requested soak test if several were completed', () => {
  const results = [7, 8].flatMap((seed) => soakOf(seed).map((name) => kept({ part: 'soak', name })));
  const asked = tasksOf('soak', { quick: false, seed: 7, soakMs: HOUR_MS });
  expect(resultsOf(asked, results).map(({ name }) => name)).toEqual(soakOf(7));
});
