import type { Perform } from './action.ts';
import { logEvent } from './log-action.ts';
import { postEvent } from './post-action.ts';
import { type Publish, publishEvent } from './publish-action.ts';
import { type RunOptions, runCommand } from './run-action.ts';

export interface PerformerOptions extends RunOptions {
  publish: Publish;
}

/** What the runner calls for each action. */
export function createPerformer(options: PerformerOptions): Perform {
  return async (action, context) => {
    switch (action.kind) {
      case 'run':
        return runCommand(action, context, options);
      case 'post':
        return postEvent(action, context);
      case 'publish':
        return publishEvent(action, context, options.publish);
      case 'log':
        return logEvent(action, context, options.logger);
    }
  };
}
