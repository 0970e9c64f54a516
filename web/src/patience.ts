import { ApiError } from "./api";

// Interrupted says that a stream broke and is tried again.
export class Interrupted extends Error {
  constructor() {
    super("The connection broke. It is being tried again, and nothing is lost.");
  }
}

// mostAttempts bounds the attempts without an event in between: with the waits below they take some three minutes, so that a
// server that restarts is found again.
const mostAttempts = 40;

// Patience decides how long a stream that broke is tried again.
export class Patience {
  private failures = 0;

  // renew is called when events arrive.
  renew() {
    this.failures = 0;
  }

  // allows reports whether to try again after an error, null = the stream just ended. An answer of the server is final; a
  // connection that broke is not, nor is the answer of a proxy that waits for its server.
  allows(error: unknown): boolean {
    this.failures++;
    const final = error instanceof ApiError && ![0, 502, 503, 504].includes(error.status);
    return !final && this.failures < mostAttempts;
  }

  wait(): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, Math.min(200 * this.failures, 5000)));
  }
}
