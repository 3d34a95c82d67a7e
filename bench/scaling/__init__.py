"""What a message costs while something grows: topics, queues, groups, connections, stored messages, timers, threads.

    ONCEMQD=build/oncemqd BENCH_BROKER=build/bench/bench_broker python3 -m scaling [DIMENSION ...]

Of each dimension there are some sizes, and for each size a daemon of its own with a generator that stays connected (bench_broker
grow). All of them are made first; then they are loaded in turn, for a quarter of a second each, forwards and backwards, round
after round. So the small and the large are measured within the same seconds, and what else happens on the machine happens to both.

* The *cost* is processor time of the whole server, user and system, from the beginning of a turn until a moment after it: what is
  put off (units of queues, tables, syncs) belongs to the messages that caused it. The median of the rounds counts.
* *Instructions* are counted by callgrind, in a run of their own on the same folders, for the smallest and the largest size: they do not
  depend on what else runs, and tell which function grows. They leave out what the kernel does, which the cost includes.
* *Memory* is what the process has of its own (RssAnon), after the same number of messages in each size.
* *Idle* is the processor time of a second without any load.

    sizes.py     the dimensions, and how a daemon gets to a size
    subject.py   a daemon and its generator
    count.py     instructions
    report.py    tables; plot.py: pictures
"""
