"""The values everything is made of: topologies, collectives, and schedules at three levels.

All are frozen, validated when built, and exact. Nothing here computes a schedule.
"""
