"""Campaigns: many scans from one file, run by one process or by many, into one table."""

from layerwise.campaigns.plan import Campaign as Campaign
from layerwise.campaigns.plan import Cell as Cell
from layerwise.campaigns.running import Event as Event
from layerwise.campaigns.running import campaign as campaign
