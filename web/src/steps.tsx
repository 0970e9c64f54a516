// The steps of a task, of which a page draws those in sight.
import { Button, Group, Text, TextInput } from "@mantine/core";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Offset } from "./parts";
import { StepView } from "./stepview";
import type { Step } from "./tasklog";

// manySteps is the number of steps from which the page offers to search in them.
const manySteps = 20;

// settle is how long nothing is typed before the address has it, in milliseconds.
const settle = 400;

// Steps shows steps, and where there are many, a search in them. restorable is that of [StepView].
export function Steps({ entries, restorable, find: first, onFind }: { entries: Step[]; restorable: string; find: string; onFind: (text: string) => void }) {
  const [find, setFind] = useState(first);
  useEffect(() => {
    if (find === first) return;
    const timer = setTimeout(() => onFind(find), settle);
    return () => clearTimeout(timer);
  }, [find, first, onFind]);
  // What is typed appears at once; the list follows as soon as it can.
  const wanted = useDeferredValue(find.trim().toLowerCase());
  const shown = useMemo(() => (wanted ? entries.filter((e) => textOf(e).includes(wanted)) : entries), [entries, wanted]);
  // Each step shows its time since the first: that is how long things took.
  const began = useMemo(() => entries.find((e) => e.at)?.at ?? "", [entries]);
  const list = useRef<HTMLOListElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => setTop(list.current?.offsetTop ?? 0), [entries.length === 0]);
  const rows = useWindowVirtualizer({ count: shown.length, estimateSize: () => 72, overscan: 6, scrollMargin: top, scrollPaddingStart: 130, useFlushSync: false });
  const go = (index: number, align: "start" | "end") => rows.scrollToIndex(index, { align });
  return (
    <>
      {(entries.length > manySteps || find) && (
        <Group gap="xs" align="flex-end" className="stepsbar">
          <TextInput label="Find in the timeline" value={find} onChange={(e) => setFind(e.currentTarget.value)} className="grow" />
          <Button variant="default" onClick={() => go(0, "start")} disabled={shown.length === 0}>
            First step
          </Button>
          <Button variant="default" onClick={() => go(shown.length - 1, "end")} disabled={shown.length === 0}>
            Last step
          </Button>
          <Text size="sm" c="dimmed" role="status">
            {wanted ? `${shown.length.toLocaleString("en")} of ${entries.length.toLocaleString("en")} steps` : `${entries.length.toLocaleString("en")} steps`}
          </Text>
        </Group>
      )}
      <ol className="timeline" ref={list} style={{ height: rows.getTotalSize() }}>
        {rows.getVirtualItems().map((row) => {
          const entry = shown[row.index]!;
          return (
            <li
              key={row.key}
              ref={rows.measureElement}
              data-index={row.index}
              aria-setsize={shown.length}
              aria-posinset={row.index + 1}
              style={{ transform: `translateY(${row.start - top}px)` }}
            >
              {entry.at && (
                <Text size="xs" c="dimmed" component="span" className="when">
                  <Offset at={entry.at} since={began} />
                </Text>
              )}
              <StepView step={entry} restorable={restorable} />
            </li>
          );
        })}
      </ol>
    </>
  );
}

// texts are what was already made of entries: the search of a long task would make them at each key.
const texts = new WeakMap<Step, string>();

function textOf(entry: Step): string {
  const known = texts.get(entry);
  if (known !== undefined) return known;
  const { at: _, ...content } = entry;
  const text = Object.values(entry.kind === "call" ? entry.call : content)
    .map((v) => (typeof v === "string" ? v : JSON.stringify(v)))
    .join(" ")
    .toLowerCase();
  texts.set(entry, text);
  return text;
}
