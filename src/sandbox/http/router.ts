import type { Answer, Call } from './call.ts';

/** Authentication required by a route: a bearer token, or none. Token endpoints authenticate clients themselves. */
type RouteAuth = 'bearer' | 'none';

export interface Route {
  method: string;
  /** `/v1/assets/:id/values`. */
  pattern: string;
  auth: RouteAuth;
  /** Whether calls count against rate limits and quota. */
  counted: boolean;
  handle(call: Call): Answer | Promise<Answer>;
}

export interface Match {
  route: Route;
  params: Record<string, string>;
}

/** Finds the route for a request. If several routes match, the one registered first is used. */
export class Router {
  readonly #routes: { route: Route; segments: string[] }[] = [];

  add(
    method: string,
    pattern: string,
    handle: Route['handle'],
    options: Partial<Pick<Route, 'auth' | 'counted'>> = {},
  ) {
    const auth = options.auth ?? 'bearer';
    const route: Route = { method, pattern, handle, auth, counted: options.counted ?? auth === 'bearer' };
    this.#routes.push({ route, segments: pattern.split('/').slice(1) });
  }

  get routes(): readonly Route[] {
    return this.#routes.map(({ route }) => route);
  }

  /** Returns the route, or the methods allowed for the path. The list of methods is empty for an unknown path. */
  find(method: string, path: string): Match | { allowed: string[] } {
    const segments = path.split('/').slice(1);
    const allowed: string[] = [];
    for (const { route, segments: pattern } of this.#routes) {
      const params = match(pattern, segments);
      if (!params) continue;
      if (route.method === method) return { route, params };
      if (!allowed.includes(route.method)) allowed.push(route.method);
    }
    return { allowed };
  }
}

function match(pattern: string[], segments: string[]): Record<string, string> | undefined {
  if (pattern.length !== segments.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of pattern.entries()) {
    const segment = segments[index]!;
    if (!part.startsWith(':')) {
      if (part !== segment) return undefined;
      continue;
    }
    try {
      params[part.slice(1)] = decodeURIComponent(segment);
    } catch {
      return undefined;
    }
  }
  return params;
}
