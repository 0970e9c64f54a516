import { useSyncExternalStore } from "react";

// Store holds one value that several screens read.
export interface Store<T> {
  get(): T;
  set(value: T): void;
  use(): T;
  // subscribe calls listener after each change, until what it returns is called.
  subscribe(listener: () => void): () => void;
}

export function createStore<T>(initial: T): Store<T> {
  let value = initial;
  const listeners = new Set<() => void>();
  const get = () => value;
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return {
    get,
    set(next) {
      value = next;
      listeners.forEach((listener) => listener());
    },
    subscribe,
    use: () => useSyncExternalStore(subscribe, get),
  };
}
