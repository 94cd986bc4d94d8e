// Preload (`--import`) that records the modules that our modules load, and how, in FOOTPRINT_NOTES.
import { appendFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

const ours = (url) => url?.startsWith(process.env.FOOTPRINT_OURS) === true;

registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    if (ours(context.parentURL)) {
      const how = context.conditions.includes('import') ? 'import' : 'require';
      appendFileSync(process.env.FOOTPRINT_NOTES, `${how} ${resolved.url}\n`);
    }
    return resolved;
  },
});
